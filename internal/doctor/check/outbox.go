package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// outbox reads the table as the relay will, and says of each column that does not fit how to repair it.
func (e *postgresExam) outbox() error {
	what := "outbox " + e.cfg.Outbox.Table
	table, err := e.store.Outbox(e.ctx)
	if err == nil {
		e.table = table
		said := fmt.Sprintf("exists with the columns that are mapped; ids are %s, payloads %s", table.IDType,
			table.PayloadType)
		if e.cfg.Outbox.Columns.Headers == "" && slices.Contains(table.Columns, "headers") {
			said += `; its column "headers" is not published, as outbox.columns.headers is not set`
		}
		if table.Zone != "" {
			origin := "the database's time zone"
			if e.cfg.Outbox.TimeZone != "" {
				origin = "outbox.time_zone"
			}
			said += fmt.Sprintf("; times without a time zone are in %s (%s)", table.Zone, origin)
		}
		e.add(OK, what, said, "")
		return nil
	}
	if errors.Is(err, store.ErrNoOutbox) {
		e.add(Fail, what, "does not exist in this database",
			e.byInit("cdc-relay init creates it; or set outbox.table to the one that you have, spelled as the catalog does"))
		return nil
	}
	if hidden, is := errors.AsType[*store.HiddenError](err); is {
		e.add(Fail, what, hidden.What, hidden.Repair)
		return nil
	}
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return err
	}
	for _, one := range several.Unwrap() {
		text, fix, _ := strings.Cut(one.Error(), ": ")
		e.add(Fail, what, text, fix)
	}
	return nil
}

// byInit is a fix by init, with the statements that its role lacks, if init is run as this one.
func (e *postgresExam) byInit(fix string) string {
	role, statements, err := e.shared().InitLacks(e.ctx, e.cfg.Postgres.Publication)
	if err != nil || len(statements) == 0 {
		return fix
	}
	return fix + "; run it as a role that may, or give " + role + " what it lacks: " + strings.Join(statements, " ")
}

func quoteName(s string) string { return pgx.Identifier{s}.Sanitize() }

func quoteTable(s string) string {
	schema, name := config.SplitTable(s)
	return pgx.Identifier{schema, name}.Sanitize()
}

const publishedAt = "published_at" // the column that after_publish: mark sets unless outbox.mark_set says otherwise

// indexes looks for indexes that make each mark a non-HOT update. Those of kind BRIN do no harm since version 16.
func (e *postgresExam) indexes() error {
	if e.table.OID == 0 || e.cfg.Outbox.AfterPublish != config.AfterPublishMark {
		return nil
	}
	type pair struct{ Index, Column string }
	var pairs []pair
	const query = `SELECT DISTINCT i.indexrelid::regclass::text, a.attname::text FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
		JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
		WHERE i.indrelid = $1 AND NOT (am.amname = 'brin' AND current_setting('server_version_num')::int >= 160000)
		ORDER BY 1`
	err := store.ReadOnly(e.ctx, e.conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(e.ctx, query, e.table.OID)
		if err == nil {
			pairs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[pair])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the outbox's indexes: %w", err)
	}
	marked := publishedAt
	if e.cfg.Outbox.MarkSet != "" {
		marked = "a column of outbox.mark_set"
	}
	var spoiling []string
	for _, p := range pairs {
		if e.marks(p.Column) && !slices.Contains(spoiling, p.Index) {
			spoiling = append(spoiling, p.Index)
		}
	}
	if len(spoiling) == 0 {
		e.add(OK, "HOT", "no index mentions "+marked, "")
		return nil
	}
	e.add(Warn, "HOT",
		fmt.Sprintf("each mark of a published row is a non-HOT update (slower, bloats the table) because %s mentions %s",
			strings.Join(spoiling, ", "), marked),
		"unless something needs it: DROP INDEX CONCURRENTLY "+strings.Join(spoiling, ", ")+
			"; and find unpublished rows by the status view, or set outbox.after_publish: keep")
	return nil
}

// marks reports whether a mark changes the column: whether outbox.mark_set names it, which an expression may do, too.
func (e *postgresExam) marks(column string) bool {
	set := e.cfg.Outbox.MarkSet
	if set == "" {
		return column == publishedAt
	}
	return regexp.MustCompile(`(?i)(^|[^\pL\pN_])` + regexp.QuoteMeta(column) + `($|[^\pL\pN_])`).MatchString(set)
}

// privileges looks for each of the grants that the SQL side needs, and names those that are missing.
func (e *postgresExam) privileges() error {
	if e.table.OID == 0 {
		return nil
	}
	role, missing, err := e.store.MissingGrants(e.ctx, e.table)
	if err != nil {
		return err
	}
	name, outbox := "privileges on "+e.cfg.Outbox.Table, quoteTable(e.cfg.Outbox.Table)
	e.lacking = map[bool][]store.Grant{}
	for _, g := range missing {
		e.lacking[g.Table == outbox] = append(e.lacking[g.Table == outbox], g)
	}
	if lacking := e.lacking[true]; len(lacking) > 0 {
		e.lacks(name, role, lacking)
		return nil
	}
	marks := slices.Contains(e.table.Columns, publishedAt)
	if e.cfg.Outbox.AfterPublish == config.AfterPublishMark && e.cfg.Outbox.MarkSet == "" && !marks {
		e.add(Warn, name, "no column "+publishedAt+": published rows are kept as they are",
			"set outbox.after_publish: keep, or outbox.mark_set for columns of your own")
	} else {
		e.add(OK, name, "role "+role+" has what it needs", "")
	}
	return nil
}

// shared is the Store that knows what the relay's own tables need: of several outboxes, that of the first.
func (e *postgresExam) shared() *store.Store {
	if e.cfg.Outbox.Tables == "" || e.table.OID == 0 {
		return e.store
	}
	return e.store.Of(e.table.Schema, e.table.Name)
}

// lacks reports grants that are missing, with the statements that give them.
func (e *postgresExam) lacks(name, role string, missing []store.Grant) {
	var what, fix []string
	for _, g := range missing {
		what = append(what, g.String())
		fix = append(fix, "GRANT "+g.String()+" TO "+quoteName(role)+";")
	}
	e.add(Fail, name, fmt.Sprintf("role %s lacks %s", role, strings.Join(what, ", ")), strings.Join(fix, " "))
}

// relayTables looks at the relay's own tables: whether init made them and whether this role may use them.
func (e *postgresExam) relayTables() error {
	if e.cfg.Outbox.Tables != "" && e.table.OID == 0 {
		return nil // none of the outboxes fits, as was said
	}
	if e.table.OID != 0 && len(e.lacking) == 0 {
		_, err := e.shared().Plan(e.ctx)
		if obstacle, is := errors.AsType[*store.ObstacleError](err); is { // init would say the same
			e.add(Fail, "relay's tables", obstacle.What, obstacle.Fix)
			return nil
		}
	}
	var found int
	var role string
	err := e.row(`SELECT current_user::text, count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		AND (c.relname LIKE 'cdc\_relay\_%' OR c.relname = $2)`,
		[]any{e.cfg.Postgres.Schema, deadLetterTable(e.cfg)}, &role, &found)
	switch {
	case err != nil:
		return err
	case found == 0:
		e.add(Fail, "relay's tables", "none in schema "+e.cfg.Postgres.Schema,
			e.byInit("cdc-relay init creates them (--dry-run prints the SQL)"))
	case len(e.lacking[false]) > 0:
		e.lacks("relay's tables", role, e.lacking[false])
	default:
		return e.upToDate(fmt.Sprintf("%d in schema %s", found, e.cfg.Postgres.Schema))
	}
	return nil
}

// upToDate looks whether the tables are those of this version. Those of an older one are changed by init, or by a
// start.
func (e *postgresExam) upToDate(said string) error {
	outstanding, err := e.shared().Plan(e.ctx)
	if err != nil {
		return err
	}
	if len(outstanding) == 0 {
		e.add(OK, "relay's tables", said, "")
		return nil
	}
	_, lacking, err := e.shared().InitLacks(e.ctx, e.cfg.Postgres.Publication)
	if err != nil {
		return err
	}
	level := Warn
	if len(lacking) > 0 { // a start of this role would halt
		level = Fail
	}
	e.add(level, "relay's tables", said+", of an older version", e.byInit("cdc-relay init adds what is new"))
	return nil
}

// schemas looks whether the role may look into the schemas: without that nothing else can be seen.
func (e *postgresExam) schemas() error {
	outbox, _ := config.SplitTable(e.cfg.Outbox.Table)
	for _, schema := range slices.Compact([]string{outbox, e.cfg.Postgres.Schema}) {
		var role string
		var closed bool
		if err := e.row("SELECT current_user::text, EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND NOT "+
			"has_schema_privilege(oid, 'USAGE'))", []any{schema}, &role, &closed); err != nil {
			return err
		}
		if closed {
			e.lacks("schema "+schema, role, []store.Grant{{Schema: schema, Privilege: "USAGE"}})
		}
	}
	return nil
}

func deadLetterTable(cfg config.Config) string {
	if cfg.DLQ.Table != "" {
		_, name := config.SplitTable(cfg.DLQ.Table)
		return name
	}
	_, name := config.SplitTable(cfg.Outbox.Named())
	return name + "_dlq"
}

func (e *postgresExam) publication() error {
	if e.table.OID == 0 {
		return nil // what it must publish is not known
	}
	name := e.cfg.Postgres.Publication
	what := "publication " + name
	problems, err := e.store.CheckPublication(e.ctx, name)
	if store.Classify(err) == store.Retry { // from 16 on the catalog's view of a publication waits for its tables
		e.add(Warn, what, "the outbox is locked and was not checked: "+err.Error(), lookAgain)
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range problems {
		who := "as the owner of the publication" // init leaves alone one that is there: it may be someone's on purpose
		if p.Repair == e.store.PublicationSQL(name) {
			who = "as the table's owner, or by cdc-relay init"
		}
		e.add(Fail, what, p.What, p.Repair+"; ("+who+")")
	}
	if len(problems) > 0 {
		return nil
	}
	var more bool
	if err := e.row("SELECT pubupdate OR pubdelete OR pubtruncate FROM pg_publication WHERE pubname = $1", []any{name},
		&more); err != nil {
		return err
	}
	if more {
		e.add(Warn, what, "publishes updates or deletes too, which the relay throws away",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert');", quoteName(name)))
		return nil
	}
	e.add(OK, what, "publishes inserts of "+e.cfg.Outbox.Table, "")
	return nil
}
