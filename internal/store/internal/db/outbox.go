package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Table is the outbox with what only statements need to know of it.
type Table struct {
	record.Outbox
	CreatedZoned bool   // created_at has a time zone
	idCollation  string // of a text id, quoted; "" = the id has none
	HasJSON      bool   // some column is json, which may hold what jsonb refuses
	Position     string // a bigint of the row o that sorts as OrderBy does, or by its first column; "" = there is none
}

type column struct {
	name, base, declared string
	generated, partition bool
	collation            string
}

// ReadTable reads the table's shape from the catalog and keeps it for the calls that need it. The error names the
// column that is missing or of the wrong type, and what repairs it. It reads the catalog only and waits for no lock.
func (s *DB) ReadTable(ctx context.Context) (*Table, error) {
	var o Table
	err := s.Tx(ctx, Reading, func(tx pgx.Tx) (err error) {
		o, err = s.Describe(ctx, tx)
		return err
	})
	if err != nil {
		return nil, s.OfOutbox(err)
	}
	s.table.Store(&o)
	return &o, nil
}

// OfOutbox adds the name of the outbox to an error.
func (s *DB) OfOutbox(err error) error {
	return fmt.Errorf("outbox %s.%s: %w", s.Names.OutboxSchema, s.Names.OutboxTable, err)
}

// Describe is ReadTable in a transaction; with [record.ErrNoOutbox] it has the name at least.
func (s *DB) Describe(ctx context.Context, tx pgx.Tx) (Table, error) {
	o := Table{Outbox: record.Outbox{Schema: s.Names.OutboxSchema, Name: s.Names.OutboxTable}}
	if err := readTable(ctx, tx, &o); err != nil {
		return o, err
	}
	columns, err := readColumns(ctx, tx, o.OID)
	if err != nil {
		return o, err
	}
	children, err := inheriting(ctx, tx, o.OID)
	if err != nil {
		return o, err
	}
	o.HasJSON = slices.ContainsFunc(columns, func(c column) bool { return c.base == "json" || c.base == "json[]" })
	if err := s.fit(&o, columns, children); err != nil {
		return o, err
	}
	if err := s.checkHidden(ctx, tx, &o); err != nil {
		return o, err
	}
	return o, s.readZone(ctx, tx, &o, columns)
}

// inheriting lists the tables that inherit from the table and are not partitions of it, ready to stand in SQL.
func inheriting(ctx context.Context, tx pgx.Tx, oid uint32) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = $1 AND NOT c.relispartition ORDER BY 1`, oid)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func readTable(ctx context.Context, tx pgx.Tx, o *Table) error {
	var kind, persistence string
	err := tx.QueryRow(ctx, `SELECT c.oid, c.relkind::text, c.relpersistence::text FROM pg_class c JOIN pg_namespace n ON
 n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2`, o.Schema, o.Name).Scan(&o.OID, &kind, &persistence)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: set outbox.table to the table's name as the catalog spells it (schema.table), or let "+
			"`cdc-relay init` create it", record.ErrNoOutbox)
	case err != nil:
		return err
	case kind != "r" && kind != "p":
		what, is := map[string]string{"v": "a view", "m": "a materialized view", "f": "a foreign table"}[kind]
		if !is {
			what = "not a table"
		}
		return fmt.Errorf("it is %s, and only changes of ordinary and partitioned tables of this database are in its WAL: "+
			"set "+
			"outbox.table to the table that rows are inserted into", what)
	case persistence != "p":
		return fmt.Errorf("it is an UNLOGGED or temporary table, whose rows are not in the WAL: ALTER TABLE %s SET LOGGED "+
			"(which writes it again under a lock), or set outbox.table to another", Quote(o.Schema, o.Name))
	}
	o.Partitioned = kind == "p"
	rows, err := tx.Query(ctx,
		`SELECT $1::oid UNION SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) ORDER BY 1`, o.OID)
	if err != nil {
		return err
	}
	o.OIDs, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
	return err
}

// readColumns follows domains down to the type that they are made of. A column by which the table is partitioned, or a
// partition of it, by itself or in an expression, depends on the table that it is of (StorePartitionKey in Postgres's
// heap.c).
func readColumns(ctx context.Context, tx pgx.Tx, oid uint32) ([]column, error) {
	rows, err := tx.Query(ctx, `
WITH RECURSIVE typ AS (
    SELECT a.attnum, a.atttypid AS oid FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT typ.attnum, t.typbasetype FROM typ JOIN pg_type t ON t.oid = typ.oid AND t.typtype = 'd'
)
SELECT a.attname::text, format_type(t.oid, NULL), format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
       EXISTS (SELECT FROM pg_partition_tree($1::oid::regclass) p
       JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = p.relid
        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p.relid AND d.refobjsubid = 0 AND d.deptype = 'i'
        JOIN pg_attribute k ON k.attrelid = p.relid AND k.attnum = d.objsubid AND k.attname = a.attname),
       coalesce((SELECT format('%I.%I', n.nspname, c.collname) FROM pg_collation c
       JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation), '')
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

// Sources are the numbers that the table has, under any slot: records and journal rows of all of them are of its rows.
func (s *DB) Sources(ctx context.Context, tx pgx.Tx, o *Table) ([]int32, error) {
	rows, err := tx.Query(ctx, s.Names.SQL(`SELECT source FROM {source} WHERE table_oid = $1 ORDER BY source`), o.OID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}
