package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Outbox is what the catalog says about the outbox table.
type Outbox struct {
	OID            uint32
	OIDs           []uint32 // the table's own and, if it is partitioned, those of all its partitions
	Partitioned    bool
	Schema, Name   string
	IDType         string   // of event_id in the journal: uuid, text (also for varchar) or bigint (for all integers)
	PayloadType    string   // jsonb, json, text or bytea (of a domain: the type below it)
	HeadersType    string   // jsonb or json; text when the column is one; "" = no such column
	HasPublishedAt bool     // there is a column published_at
	Columns        []string // all of the table's, in its order
	createdZoned   bool     // created_at has a time zone
	idCollation    string   // of a text id, quoted; "" = the id has none
	position       string   // a bigint of the row o that sorts as OrderBy does, or by its first column; "" = there is none

	// Ready to stand in SQL, defaults filled in.
	OrderBy       string
	PublishedWhen string
	MarkSet       string // "" = nothing is marked
}

// ErrNoOutbox says that the outbox table does not exist.
var ErrNoOutbox = errors.New("the outbox table does not exist")

type column struct {
	name, base, declared string
	generated, partition bool
	collation            string
}

// Outbox reads the table's shape from the catalog and keeps it for the calls that need it. The error names the column
// that is missing or of the wrong type, and what repairs it. It reads the catalog only and waits for no lock.
func (s *Store) Outbox(ctx context.Context) (Outbox, error) {
	var o Outbox
	err := s.tx(ctx, reading, func(tx pgx.Tx) (err error) {
		o, err = s.describe(ctx, tx)
		return err
	})
	if err != nil {
		return Outbox{}, s.ofOutbox(err)
	}
	s.table.Store(&o)
	return o, nil
}

func (s *Store) ofOutbox(err error) error {
	return fmt.Errorf("outbox %s.%s: %w", s.names.outboxSchema, s.names.outboxTable, err)
}

// describe is Outbox in a transaction; with [ErrNoOutbox] it has the name at least.
func (s *Store) describe(ctx context.Context, tx pgx.Tx) (Outbox, error) {
	o := Outbox{Schema: s.names.outboxSchema, Name: s.names.outboxTable}
	if err := readTable(ctx, tx, &o); err != nil {
		return o, err
	}
	columns, err := readColumns(ctx, tx, o.OID)
	if err != nil {
		return o, err
	}
	return o, s.fit(&o, columns)
}

func readTable(ctx context.Context, tx pgx.Tx, o *Outbox) error {
	var kind string
	err := tx.QueryRow(ctx, `SELECT c.oid, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2`, o.Schema, o.Name).Scan(&o.OID, &kind)
	switch {
	case err == pgx.ErrNoRows:
		return fmt.Errorf("%w: set outbox.table to the table's name as the catalog spells it (schema.table), or let `cdc-relay init` create it", ErrNoOutbox)
	case err != nil:
		return err
	case kind != "r" && kind != "p":
		return fmt.Errorf("it is not a table: set outbox.table to an ordinary or partitioned table")
	}
	o.Partitioned = kind == "p"
	rows, err := tx.Query(ctx, `SELECT $1::oid UNION SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) ORDER BY 1`, o.OID)
	if err != nil {
		return err
	}
	o.OIDs, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
	return err
}

// readColumns follows domains down to the type that they are made of. A column by which the table is partitioned, or a partition of it, by
// itself or in an expression, depends on the table that it is of (StorePartitionKey in Postgres's heap.c).
func readColumns(ctx context.Context, tx pgx.Tx, oid uint32) ([]column, error) {
	rows, err := tx.Query(ctx, `
WITH RECURSIVE typ AS (
    SELECT a.attnum, a.atttypid AS oid FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT typ.attnum, t.typbasetype FROM typ JOIN pg_type t ON t.oid = typ.oid AND t.typtype = 'd'
)
SELECT a.attname::text, format_type(t.oid, NULL), format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
       EXISTS (SELECT FROM pg_partition_tree($1::oid::regclass) p JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = p.relid
        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p.relid AND d.refobjsubid = 0 AND d.deptype = 'i'
        JOIN pg_attribute k ON k.attrelid = p.relid AND k.attnum = d.objsubid AND k.attname = a.attname),
       coalesce((SELECT format('%I.%I', n.nspname, c.collname) FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation), '')
FROM pg_attribute a
JOIN typ ON typ.attnum = a.attnum
JOIN pg_type t ON t.oid = typ.oid AND t.typtype <> 'd'
WHERE a.attrelid = $1
ORDER BY a.attnum`, oid)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (c column, err error) {
		err = r.Scan(&c.name, &c.base, &c.declared, &c.generated, &c.partition, &c.collation)
		return c, err
	})
}

// wanted is one mapped column: the configuration key behind it, and the types that fit.
type wanted struct {
	key, name string
	types     []string // nil = any
	add       string   // type for the ALTER that would add it
}

func (s *Store) wanted() []wanted {
	c := s.config.Columns
	list := []wanted{
		{"id", c.ID, []string{"uuid", "text", "character varying", "smallint", "integer", "bigint"}, "uuid"},
		{"aggregate_type", c.AggregateType, nil, "text"},
		{"aggregate_id", c.AggregateID, nil, "text"},
		{"event_type", c.EventType, nil, "text"},
		{"payload", c.Payload, []string{"jsonb", "json", "text", "character varying", "bytea"}, "jsonb"},
		{"headers", c.Headers, []string{"jsonb", "json", "text", "character varying"}, "jsonb"},
		{"created_at", c.CreatedAt, []string{"timestamp with time zone", "timestamp without time zone"}, "timestamptz NOT NULL DEFAULT clock_timestamp()"},
	}
	for _, name := range c.Extra {
		list = append(list, wanted{"", name, nil, "text"})
	}
	return list
}

// fit checks the mapped columns, all at once, and fills in the defaults that depend on the table.
func (s *Store) fit(o *Outbox, columns []column) error {
	byName := make(map[string]column, len(columns))
	for _, c := range columns {
		byName[c.name] = c
		o.Columns = append(o.Columns, c.name)
	}
	var problems []error
	for _, w := range s.wanted() {
		if w.name == "" {
			continue
		}
		problems = append(problems, s.fitColumn(w, byName, o.Columns))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	c := s.config.Columns
	switch base := byName[c.ID].base; base {
	case "uuid":
		o.IDType = idUUID
	case "smallint", "integer", "bigint":
		o.IDType = idBigint // so that the application may widen its column
	default:
		o.IDType = idText
	}
	o.PayloadType, o.HeadersType = storedType(byName[c.Payload].base), storedType(byName[c.Headers].base)
	o.idCollation = byName[c.ID].collation
	o.createdZoned = byName[c.CreatedAt].base == "timestamp with time zone"
	s.fitDefaults(o, byName)
	return fitPartitionKey(o, columns)
}

func storedType(base string) string {
	if base == "character varying" {
		return "text"
	}
	return base
}

func (s *Store) fitColumn(w wanted, byName map[string]column, all []string) error {
	key := "outbox.columns." + w.key
	if w.key == "" {
		key = "the template that names it"
	}
	have, found := byName[w.name]
	switch {
	case !found:
		return fmt.Errorf("there is no column %[1]q: if it was renamed, ALTER TABLE %[2]s RENAME COLUMN <its name now> TO %[3]s, or set %[4]s to one of its columns (%[5]s); "+
			"if it is missing, ALTER TABLE %[2]s ADD COLUMN %[3]s %[6]s", w.name, s.names.outbox, quote(w.name), key, strings.Join(all, ", "), w.add)
	case w.types != nil && !slices.Contains(w.types, have.base):
		return fmt.Errorf("column %q is of type %s, want one of %s: set %s to another column",
			w.name, have.declared, strings.Join(w.types, ", "), key)
	case have.generated:
		return fmt.Errorf("column %q is generated, and generated columns are not in the WAL: set %s to another column", w.name, key)
	}
	return nil
}

func (s *Store) fitDefaults(o *Outbox, byName map[string]column) {
	_, o.HasPublishedAt = byName["published_at"]
	o.PublishedWhen, o.MarkSet, o.OrderBy = s.config.PublishedWhen, s.config.MarkSet, s.config.OrderBy
	if o.PublishedWhen == "" {
		o.PublishedWhen = "false"
		if o.HasPublishedAt {
			o.PublishedWhen = "published_at IS NOT NULL"
		}
	}
	if o.MarkSet == "" && o.HasPublishedAt {
		o.MarkSet = "published_at = now()"
	}
	if s.config.AfterPublish == Keep || s.config.AfterPublish == Delete {
		o.MarkSet = ""
	}
	if o.OrderBy != "" {
		o.OrderBy = quoteColumns(o.OrderBy, byName)
		return
	}
	if seq, found := byName["seq"]; found {
		o.OrderBy = "seq"
		if seq.base == "bigint" || seq.base == "integer" || seq.base == "smallint" {
			o.position = "o.seq::bigint"
		}
		return
	}
	if created := s.config.Columns.CreatedAt; created != "" {
		o.OrderBy = quote(created) + ", "
		o.position = "CASE WHEN isfinite(o." + quote(created) + ") THEN (extract(epoch FROM o." + quote(created) + ") * 1000000)::bigint ELSE 0 END"
	}
	o.OrderBy += quote(s.config.Columns.ID)
}

// quoteColumns quotes the terms of an ORDER BY that begin with a column of the table, which has its name as the catalog spells it.
func quoteColumns(terms string, byName map[string]column) string {
	list := strings.Split(terms, ",")
	for i, term := range list {
		name, direction, _ := strings.Cut(strings.TrimSpace(term), " ")
		if _, found := byName[name]; found {
			list[i] = strings.TrimSpace(quote(name) + " " + direction)
		}
	}
	return strings.Join(list, ", ")
}

// fitPartitionKey refuses a mark that would move a row to another partition: Postgres replicates such an UPDATE as an
// INSERT of the same row, also with publish = 'insert', and the event would be delivered again.
func fitPartitionKey(o *Outbox, columns []column) error {
	for _, c := range columns {
		if c.partition && o.MarkSet != "" && assigns(o.MarkSet, c.name) {
			return fmt.Errorf("outbox.mark_set changes %q, by which the table is partitioned: the row would move and be delivered again; set outbox.after_publish to keep, or mark_set to other columns", c.name)
		}
	}
	return nil
}

// assigns tells whether the assignments name the column before an equals sign or in a list of columns; a false alarm is
// possible where the name is part of an expression, an oversight is not.
func assigns(set, column string) bool {
	word := func(r byte) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
	}
	set, column = strings.ToLower(set), strings.ToLower(column)
	for from := 0; ; {
		i := strings.Index(set[from:], column)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(column)
		if (start == 0 || !word(set[start-1])) && (end == len(set) || !word(set[end])) {
			return true
		}
		from = start + 1
	}
}

// collate makes a comparison of text ids one of bytes, as the journal's index has them.
func (o *Outbox) collate() string {
	if o.IDType == idText {
		return ` COLLATE "C"`
	}
	return ""
}

// collateOwn makes a comparison with text ids of the relay's tables one that the outbox's own index answers.
func (o *Outbox) collateOwn() string {
	if o.idCollation == "" {
		return ""
	}
	return " COLLATE " + o.idCollation
}

// sql fills in tables, columns and conditions. {published} is the row's own word. {recorded} and {unrecorded} ask whether
// the id of the row o is in the journal, parked, or a dead letter of the source $1; the first for a handful of rows, the
// second for a whole table.
func (s *Store) sql(o *Outbox, text string) string {
	id := quote(s.config.Columns.ID)
	oid := "o." + id + o.collate()
	text = strings.NewReplacer("{recorded}", recordedWhen, "{unrecorded}", unrecordedWhen).Replace(text)
	text = strings.NewReplacer("{oid}", oid, "{id}", id, "{order}", o.OrderBy, "{mark}", o.MarkSet, "{collate}", o.collate(), "{collate_own}", o.collateOwn(),
		"{published}", "("+o.PublishedWhen+"\n) IS TRUE",
		"{journal}", s.names.journal, "{parked}", s.names.parked, "{dlq}", s.names.dlq, "{batch}", s.names.batch,
		"{outbox}", s.names.outbox, "{state}", s.names.state, "{catch_up}", s.names.catchUp).Replace(text)
	return text
}

// recordedWhen is at most one index probe per table and row. EXISTS would leave Postgres the choice to read the whole
// journal into a hash instead, by an estimate that does not know of a LIMIT; and a plain OR is estimated so rare that a
// page of 500 rows is planned as a join of whole tables: 500 ms instead of 7 at 100,000 rows. A CASE is neither.
const recordedWhen = `CASE WHEN (SELECT true FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) THEN true
 WHEN (SELECT true FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1) THEN true
 WHEN (SELECT true FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid} LIMIT 1) THEN true ELSE false END`

// unrecordedWhen has the form of which Postgres makes anti joins.
const unrecordedWhen = `NOT EXISTS (SELECT 1 FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid})
 AND NOT EXISTS (SELECT 1 FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid})
 AND NOT EXISTS (SELECT 1 FROM {dlq} r WHERE r.source = $1 AND r.original_id = {oid})`
