package check

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// lookAgain is the way out of a lock that a check met.
const lookAgain = "run cdc-relay check again when the lock is gone"

// expressions lets the server judge what the configuration puts into SQL.
func (e *postgresExam) expressions() error {
	if e.table.OID == 0 {
		return nil
	}
	err := e.store.CheckExpressions(e.ctx)
	refused := store.ExpressionErrors(err)
	for _, one := range refused {
		e.add(Fail, one.Key, fmt.Sprintf("%s: Postgres refuses it: %v", one.Value, one.Err), one.Fix)
	}
	switch class := store.Classify(err); {
	case err == nil:
		e.add(OK, "expressions", "Postgres takes outbox.published_when, outbox.order_by, mark_set, dead_set and retry_set",
			"")
	// a standby, or a privilege: they have lines of their own
	case len(refused) > 0, class == store.FindPrimary, class == store.Setup:
	case class == store.Retry:
		e.add(Warn, "expressions",
			"the outbox is locked, so outbox.published_when, outbox.order_by, mark_set, dead_set and retry_set were not "+
				"checked: "+err.Error(), lookAgain)
	default:
		return err
	}
	return nil
}

// identity looks whether the table itself keeps ids apart: an event whose id was published counts as published.
func (e *postgresExam) identity() error {
	if e.table.OID == 0 {
		return nil
	}
	id := e.cfg.Outbox.Columns.ID
	var always, unique, within bool
	err := e.row(`SELECT a.attnotnull OR t.typnotnull,
		EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
		AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
		EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
		AND i.indpred IS NULL AND i.indnkeyatts > 1 AND a.attnum = ANY (i.indkey))
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1 AND a.attname = $2
		AND NOT a.attisdropped`,
		[]any{e.table.OID, id}, &always, &unique, &within)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // dropped since the table was read
	}
	if err != nil {
		return err
	}
	what, table := "column "+id, quoteTable(e.cfg.Outbox.Table)
	switch {
	case unique:
	case e.table.Partitioned && within:
		e.add(Warn, what,
			"it is unique together with other columns only, as it must be in a partitioned table: of two rows with one id in "+
				"different partitions only one would be published",
			"let the database make the ids (DEFAULT gen_random_uuid(), or an identity column), so that none comes twice")
	case e.table.Partitioned:
		e.add(Warn, what, "nothing keeps it unique: of two rows with one id only one would be published",
			fmt.Sprintf("CREATE UNIQUE INDEX ON %s (%s, the columns that the table is partitioned by);", table, quoteName(id)))
	default:
		e.add(Warn, what,
			"nothing keeps it unique: of two rows with one id only one would be published, and look-ups by id read the whole "+
				"table",
			fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);", table, quoteName(id)))
	}
	if !always {
		e.add(Warn, what, "it may be NULL, and a row without an id is an event that cannot be published",
			fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;", table, quoteName(id)))
	}
	if unique && always {
		e.add(OK, what, "unique and NOT NULL", "")
	}
	if unique {
		return e.idRange(what)
	}
	return nil
}

// replicaIdentity looks whether Postgres refuses what marks or deletes rows: it does if some publication, of
// any program, publishes updates or deletes of a table without a replica identity.
func (e *postgresExam) replicaIdentity() error {
	if e.table.OID == 0 || e.cfg.Outbox.AfterPublish == config.AfterPublishKeep {
		return nil
	}
	kind := "pubupdate"
	if e.cfg.Outbox.AfterPublish == config.AfterPublishDelete {
		kind = "pubdelete"
	}
	var name string
	err := e.row(`SELECT p.pubname::text FROM pg_publication p, pg_class c WHERE c.oid = $1 AND p.`+kind+`
		AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
		AND i.indisprimary)) AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid
		AND r.prrelid = c.oid)) ORDER BY 1 LIMIT 1`, []any{e.table.OID}, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	table := quoteTable(e.cfg.Outbox.Table)
	e.add(Fail, "replica identity", fmt.Sprintf("the table has no primary key, and publication %s publishes its "+
		"updates or "+
		"deletes: Postgres refuses to mark or delete rows, the application's changes, too", name),
		fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s); or ALTER TABLE %s REPLICA IDENTITY USING INDEX <a unique one>; "+
			"or set "+
			"outbox.after_publish: keep", table, quoteName(e.cfg.Outbox.Columns.ID), table))
	return nil
}

const manyIDs = 0.5 // the share of a column's range from which there is something to do

// idRange looks how many ids are left: a table that runs out of them takes no more events. The relay's view names the
// column, so that Postgres changes its type only without it.
func (e *postgresExam) idRange(what string) error {
	column, table := quoteName(e.cfg.Outbox.Columns.ID), quoteTable(e.cfg.Outbox.Table)
	var most, last int64 // most: 0 for a type with enough of them
	if err := e.row(`SELECT coalesce((SELECT CASE coalesce(nullif(t.typbasetype, 0), t.oid)::regtype::text
		WHEN 'smallint' THEN 32767 WHEN 'integer' THEN 2147483647 END FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		WHERE a.attrelid = $1 AND a.attname = $2), 0)::bigint`, []any{e.table.OID, e.cfg.Outbox.Columns.ID},
		&most); err != nil || most == 0 {
		return err
	}
	if err := e.row("SELECT coalesce(max("+column+"), 0)::bigint FROM "+table, nil, &last); err != nil {
		return err
	}
	if used := float64(last) / float64(most); used >= manyIDs {
		e.add(Warn, what, fmt.Sprintf("its largest id is %d of at most %d: %.0f %% of the ids are used", last, most,
			used*100),
			fmt.Sprintf("DROP VIEW %s; ALTER TABLE %s ALTER COLUMN %s TYPE bigint; then cdc-relay init, which makes the view "+
				"again "+
				"(docs/operations.md, Your migrations)", e.store.ViewName(), table, column))
	}
	return nil
}
