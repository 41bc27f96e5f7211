package db

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Collate makes a comparison of text ids one of bytes, as the journal's index has them.
func (o *Table) Collate() string {
	if o.IDType == idText {
		return ` COLLATE "C"`
	}
	return ""
}

// collateOwn makes a comparison with text ids of the relay's tables one that the outbox's own index answers.
func (o *Table) collateOwn() string {
	if o.idCollation == "" {
		return ""
	}
	return " COLLATE " + o.idCollation
}

// SQL fills in tables, columns and conditions. {published} is the row's own word. {recorded} and {unrecorded} ask
// whether the row o is in the journal, parked, or a dead letter of the source $1; the first for a handful of rows, the
// second for a whole table. {of_another} asks whether the journal's row r, which has the id of the row o, is of an
// event that had the id before. {ours} is part of the condition of whatever reads or changes the outbox: see ours.
func (s *DB) SQL(o *Table, text string) string {
	id := Quote(s.Config.Columns.ID)
	oid := "o." + id + o.Collate()
	text = strings.NewReplacer("{recorded}", recordedWhen, "{unrecorded}", unrecordedWhen).Replace(text)
	text = strings.ReplaceAll(text, "{of_another}", s.ofAnother(o))
	text = strings.NewReplacer("{oid}", oid, "{id}", id, "{order}", o.OrderBy, "{created}", s.Created(o), "{mark}",
		o.MarkSet, "{collate}",
		o.Collate(), "{collate_own}", o.collateOwn(),
		"{ours}", s.ours(o), "{published}", "("+o.PublishedWhen+"\n) IS TRUE",
		"{journal}", s.Names.Journal, "{parked}", s.Names.Parked, "{dlq}", s.Names.DLQ, "{batch}", s.Names.Batch,
		"{outbox}", s.Names.Outbox, "{state}", s.Names.State, "{catch_up}", s.Names.CatchUp,
		"{edit}", s.Names.Edit, "{epoch}", s.Names.Epoch).Replace(text)
	return text
}

// otherTable is quoted by the error of a statement that found another table under the outbox's name.
const otherTable = "cdc_relay: other table"

// ours is a condition that is true, or fails the statement: the outbox's name belongs to the table that the source is
// of. Another table may be given the name at any time. Postgres looks the name up right after it has locked the table
// of that name, so the two are the same one, and it has the answer before it reads a row: what is true costs nothing.
func (s *DB) ours(o *Table) string {
	table := s.oid.Load()
	if table == 0 { // no relay has recorded anything
		table = o.OID
	}
	return fmt.Sprintf("CASE WHEN %s::regclass::oid = '%d'::oid THEN true ELSE %s::text::boolean END",
		Literal(s.Names.Outbox), table, Literal(otherTable))
}

// explain tells the errors of ours and of logins from others.
func (s *DB) explain(err error) error {
	pg, is := errors.AsType[*pgconn.PgError](err)
	if is && pg.Code == "22P02" && strings.Contains(pg.Message, otherTable) {
		return record.ErrOtherTable
	}
	return login.Explain(err, s.Config.Password)
}

// recordedWhen is at most one index probe per table and row. EXISTS would leave Postgres the choice to read the whole
// journal into a hash instead, by an estimate that does not know of a LIMIT; and a plain OR is estimated so rare that a
// page of 500 rows is planned as a join of whole tables: 500 ms instead of 7 at 100,000 rows. A CASE is neither.
const recordedWhen = `CASE WHEN (SELECT NOT {of_another} FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid}
 LIMIT 1) THEN true
 WHEN (SELECT true FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) THEN true
 WHEN (SELECT true FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid} LIMIT 1) THEN true ELSE false END`

// unrecordedWhen has a form that Postgres plans as anti joins.
const unrecordedWhen = `NOT EXISTS (SELECT 1 FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid}
 AND NOT {of_another})
 AND NOT EXISTS (SELECT 1 FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid})
 AND NOT EXISTS (SELECT 1 FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid})`

// ofAnother is a condition that two witnesses must confirm: the row says that it was made after the journal's row was
// written, and it has a younger transaction. An application may set created_at to a time of the future, and it, a
// restored dump or the relay's own notes give a row a younger transaction; neither alone makes it another event.
func (s *DB) ofAnother(o *Table) string {
	later := s.MadeAfter(o, "r.published_at")
	return "(" + later + " AND age(o.xmin) < age(r.xmin))"
}

// MadeAfter is a condition: the row o says that it was made after the time.
func (s *DB) MadeAfter(o *Table, instant string) string {
	if s.Config.Columns.CreatedAt == "" {
		return "false"
	}
	return "coalesce(o." + Quote(s.Config.Columns.CreatedAt) + " > " + o.AsCreated(instant) + ", false)"
}

// Emits is a condition on p of pg_proc: the function that writes a message into the WAL. Some sites take the right to
// run it from PUBLIC.
const Emits = `p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::regnamespace
 AND p.proargtypes[2] = 'text'::regtype`
