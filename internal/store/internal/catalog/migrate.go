package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
	schema "github.com/cdc-relay/cdc-relay/sql"
)

// Migrate creates what is missing: the relay's schema, the outbox if there is none, the relay's own tables, the dead
// letters and the view. It changes nothing that is there at the version it knows or a later one, runs in one
// transaction, and waits while another Migrate runs in the same schema. When nothing is missing it only reads.
func (s *Catalog) Migrate(ctx context.Context) error {
	statements, err := s.Plan(ctx)
	if err != nil || len(statements) == 0 {
		return err
	}
	err = s.db.Tx(ctx, db.Migrating, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, s.migrationLock()); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		is, err := s.look(ctx, tx) // again, now that no one else creates anything
		if err != nil {
			return err
		}
		statements, err := s.plan(ctx, tx, is)
		if err != nil {
			return err
		}
		judged := false
		for _, statement := range statements {
			if judged, err = s.judgeOnce(ctx, tx, judged); err != nil {
				return err
			}
			// The simple protocol takes several statements at once; there are no parameters.
			if _, err := tx.Conn().PgConn().Exec(ctx, statement).ReadAll(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create the relay's tables in schema %s: %w", s.db.Names.Schema, err)
	}
	_, err = s.db.ReadTable(ctx)
	return err
}

// judgeOnce looks at the configuration's expressions as soon as there is an outbox, and says whether it has. The view
// holds one of them, and goes to the server in a form that would take a second statement, too.
func (s *Catalog) judgeOnce(ctx context.Context, tx pgx.Tx, judged bool) (bool, error) {
	if judged {
		return true, nil
	}
	o, err := s.db.Describe(ctx, tx)
	switch {
	case errors.Is(err, record.ErrNoOutbox):
		return false, nil
	case err != nil:
		return false, s.db.OfOutbox(err)
	}
	return true, s.checkExpressions(ctx, tx, &o)
}

// Plan is the SQL that Migrate and MakeView would run, in order, each entry one or more whole statements that end with
// a semicolon; empty when nothing is missing. It changes nothing.
func (s *Catalog) Plan(ctx context.Context) ([]string, error) {
	var statements []string
	err := s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
		is, err := s.look(ctx, tx)
		if err != nil {
			return err
		}
		if statements, err = s.plan(ctx, tx, is); err != nil {
			return err
		}
		view, err := s.planView(ctx, tx, is)
		statements = append(statements, view...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for what is missing: %w", err)
	}
	for i, statement := range statements {
		statements[i] = strings.TrimRight(statement, "; \n") + ";"
	}
	return statements, nil
}

func (s *Catalog) migrationLock() int64 {
	h := fnv.New64a()
	h.Write([]byte("cdc-relay migration " + s.db.Names.Schema))
	return int64(h.Sum64())
}

// seen holds what a transaction found in the database; each of its questions is a round trip of every start.
type seen struct {
	outbox   db.Table // as it is, or as it would be made
	names    schema.Names
	versions map[string]int // of the parts that exist; nil when nothing does
}

func (s *Catalog) look(ctx context.Context, tx pgx.Tx) (is seen, err error) {
	if is.outbox, is.names, err = s.planOutbox(ctx, tx); err != nil {
		return is, err
	}
	is.versions, err = s.versions(ctx, tx)
	return is, err
}

func (s *Catalog) plan(ctx context.Context, tx pgx.Tx, is seen) ([]string, error) {
	if err := s.db.NeedOne(); err != nil {
		return nil, err
	}
	var statements []string
	if is.versions[schema.OutboxPart(s.db.Names.DLQ)] == 0 {
		if err := s.obstacles(ctx, tx, is); err != nil {
			return nil, err
		}
	}
	schemas := []string{s.db.Config.Schema, s.db.Names.OutboxSchema, s.db.Names.DLQSchema}
	slices.Sort(schemas)
	for _, name := range slices.Compact(schemas) {
		var found bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`,
			name).Scan(&found); err != nil {
			return nil, err
		}
		if !found {
			statements = append(statements, "CREATE SCHEMA "+db.Quote(name))
		}
	}
	if is.outbox.OID == 0 {
		create, err := schema.Table(is.names)
		if err != nil {
			return nil, err
		}
		statements = append(statements, create)
	}
	if is.versions == nil {
		statements = append(statements, s.db.Names.SQL(
			"CREATE TABLE {version} (part text PRIMARY KEY, version integer NOT NULL, migrated_at timestamptz NOT NULL "+
				"DEFAULT now())"))
	} else if err := s.checkIDType(ctx, tx, is.outbox); err != nil {
		return nil, err
	}
	for _, part := range []string{schema.Relay, schema.OutboxPart(s.db.Names.DLQ)} {
		steps, err := schema.Steps(part, is.versions[part], is.names)
		if err != nil {
			return nil, err
		}
		for _, step := range steps {
			statements = append(statements, step.SQL, s.db.Names.SQL("INSERT INTO {version} (part, version) VALUES (")+
				db.Literal(part)+", "+strconv.Itoa(step.Version)+
				") ON CONFLICT (part) DO UPDATE SET version = excluded.version, migrated_at = now()")
		}
	}
	return statements, nil
}

// MakeView makes the view where the steps once made it and it is gone, since DROP TABLE … CASCADE of an outbox takes it
// along, or was made by another configuration or version. A start does without: it is for people only.
func (s *Catalog) MakeView(ctx context.Context) error {
	if !s.db.HasView() {
		return nil
	}
	err := s.db.Tx(ctx, db.Migrating, func(tx pgx.Tx) error {
		is, err := s.look(ctx, tx)
		if err != nil {
			return err
		}
		statements, err := s.planView(ctx, tx, is)
		for _, statement := range statements {
			_, err = tx.Conn().PgConn().Exec(ctx, statement).ReadAll()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create the view %s: %w", s.db.Names.View, err)
	}
	return nil
}

func (s *Catalog) planView(ctx context.Context, tx pgx.Tx, is seen) ([]string, error) {
	if !s.db.HasView() || is.versions[schema.OutboxPart(s.db.Names.DLQ)] == 0 {
		return nil, nil // it has none, or the steps make it
	}
	mark, err := is.names.ViewMark()
	if err != nil {
		return nil, err
	}
	var same bool
	err = tx.QueryRow(ctx, `SELECT coalesce(obj_description(to_regclass($1), 'pg_class') = $2, false)`, s.db.Names.View,
		mark).Scan(&same)
	if err != nil || same {
		return nil, err
	}
	if err := s.viewObstacle(ctx, tx, is); err != nil {
		return nil, err
	}
	view, err := schema.View(is.names)
	if err != nil {
		return nil, err
	}
	if retyped, err := s.retyped(ctx, tx, is.outbox); err != nil || retyped {
		return []string{"DROP VIEW " + s.db.Names.View + ";\n" + view}, err
	}
	return []string{view}, nil
}

// planOutbox is the table as it is, or as it would be made.
func (s *Catalog) planOutbox(ctx context.Context, tx pgx.Tx) (db.Table, schema.Names, error) {
	o, err := s.db.Describe(ctx, tx)
	switch {
	case err == nil:
	case errors.Is(err, record.ErrNoOutbox):
		o.IDType, o.PayloadType, o.HeadersType = db.IDUUID, "jsonb", "jsonb"
		o.HasPublishedAt, o.PublishedWhen = true, "published_at IS NOT NULL"
		if s.db.Config.PublishedWhen != "" {
			o.PublishedWhen = s.db.Config.PublishedWhen
		}
	default:
		return o, schema.Names{}, s.db.OfOutbox(err)
	}
	return o, s.schemaNames(&o), nil
}

func (s *Catalog) schemaNames(o *db.Table) schema.Names {
	c := s.db.Config.Columns
	or := func(name, otherwise string) string {
		if name == "" {
			name = otherwise
		}
		return db.Quote(name)
	}
	n := schema.Names{
		Schema: s.db.Names.Schema, Outbox: s.db.Names.Outbox, OutboxLiteral: db.Literal(s.db.Names.Outbox),
		DLQ: s.db.Names.DLQ, DLQLiteral: db.Literal(s.db.Names.DLQ), View: s.db.Names.View,
		ID: or(c.ID, "id"), EventType: or(c.EventType, "event_type"), Payload: or(c.Payload, "payload"),
		Headers:   or(c.Headers, "headers"),
		CreatedAt: or(c.CreatedAt, "created_at"),
		IDType:    o.IDType, PayloadType: o.PayloadType, HeadersType: o.HeadersType,
		PublishedWhen: o.PublishedWhen, OwnPublishedAt: "NULL::timestamptz",
	}
	if !s.db.HasView() {
		n.View = ""
	}
	created := createdField(c, o.CreatedZone)
	n.Shown = schema.Shown{Event: eventFields(c, created), Created: created, HasJSON: o.HasJSON}
	if n.HeadersType == "" {
		n.HeadersType = "jsonb"
	}
	if o.HasPublishedAt {
		n.OwnPublishedAt = "published_at"
	}
	if c.AggregateType != "" {
		n.AggregateType = db.Quote(c.AggregateType)
	}
	if c.AggregateID != "" {
		n.AggregateID = db.Quote(c.AggregateID)
	}
	for _, name := range c.Extra {
		n.Extra = append(n.Extra, db.Quote(name))
	}
	return n
}

// fieldOf is a column in the view.
func fieldOf(column string) string { return "(o.fields ->> " + db.Literal(column) + ")" }

// createdField is the view's created_at. A time without a zone is in the outbox's, as for the relay, whatever the
// session's is.
func createdField(c outbox.Columns, zone string) string {
	if c.CreatedAt == "" {
		return "NULL::timestamptz"
	}
	suffix := "'Z'"
	if zone != "" {
		suffix = db.Literal(" " + zone)
	}
	created := fieldOf(c.CreatedAt)
	return "(" + created + " || CASE WHEN " + created + " ~ '^[0-9-]+T[0-9:.]+$' THEN " + suffix +
		" ELSE '' END)::timestamptz"
}

// eventFields are the view's columns that say what an event is.
func eventFields(c outbox.Columns, created string) []schema.Field {
	of := fieldOf
	return []schema.Field{
		{Name: "event_type", Expression: db.Compose(c.EventType, nil, of)},
		{Name: "aggregate_type", Expression: db.Compose(c.AggregateType, c.TypeParts, of)},
		{Name: "aggregate_id", Expression: db.Compose(c.AggregateID, c.IDParts, of)},
		{Name: "created_at", Expression: created},
	}
}

// versions are the versions of the parts that exist; nil when nothing does.
func (s *Catalog) versions(ctx context.Context, tx pgx.Tx) (map[string]int, error) {
	var found bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'cdc_relay_schema')`, s.db.Config.Schema).Scan(&found)
	if err != nil || !found {
		return nil, err
	}
	rows, err := tx.Query(ctx, s.db.Names.SQL(`SELECT part, version FROM {version}`))
	if err != nil {
		return nil, err
	}
	versions := map[string]int{}
	var part string
	var version int
	_, err = pgx.ForEachRow(rows, []any{&part, &version}, func() error {
		versions[part] = version
		return nil
	})
	return versions, err
}

// checkIDType: outboxes that share a schema share the journal, and so the type of their ids.
func (s *Catalog) checkIDType(ctx context.Context, tx pgx.Tx, o db.Table) error {
	var have string
	err := tx.QueryRow(ctx, `SELECT format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'cdc_relay_journal' AND a.attname = 'event_id'`, s.db.Config.Schema).Scan(&have)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if have != o.IDType {
		return fmt.Errorf("the journal in schema %s holds ids of type %s, the outbox %s.%s has %s: set postgres.schema to "+
			"another schema for this outbox",
			s.db.Names.Schema, have, o.Schema, o.Name, o.IDType)
	}
	return nil
}
