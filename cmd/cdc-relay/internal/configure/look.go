package configure

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// database holds the objects that a configuration can name. It is read from the catalog; nothing is changed.
type database struct {
	name, role, version string
	walLevel            string
	tables              []table
	schemas             []string // that have a relay's tables
	publications        []publication
	slots               []slot
}

type publication struct {
	name      string
	inserts   bool
	all       bool
	published []string // as config.JoinTable has them
}

type slot struct {
	name, database, plugin, status string // those of every database of the server, which share names
	active                         bool
}

const (
	// PostgreSQL 19 raises wal_level by itself.
	serverSQL = `SELECT current_database()::text, current_user::text, current_setting('server_version'),
		CASE WHEN current_setting('server_version_num')::int < 190000 THEN current_setting('wal_level') ELSE 'logical' END`
	// The relay's own tables, dead letters among them, are no outbox.
	tablesSQL = `SELECT n.nspname::text, c.relname::text, array_agg(a.attname::text ORDER BY a.attnum),
		array_agg(format_type(a.atttypid, NULL) ORDER BY a.attnum)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
		AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		AND c.relname NOT LIKE 'cdc\_relay\_%' AND c.relname NOT LIKE '%\_dlq'
		GROUP BY 1, 2 ORDER BY 1, 2`
	schemasSQL = `SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'cdc_relay_state' AND c.relkind IN ('r', 'p') ORDER BY 1`
	publicationsSQL = `SELECT p.pubname::text, p.pubinsert, p.puballtables,
		ARRAY(SELECT t.schemaname::text FROM pg_publication_tables t WHERE t.pubname = p.pubname ORDER BY 1, t.tablename),
		ARRAY(SELECT t.tablename::text FROM pg_publication_tables t WHERE t.pubname = p.pubname ORDER BY t.schemaname, 1)
		FROM pg_publication p ORDER BY 1`
	slotsSQL = `SELECT slot_name::text, coalesce(database, '')::text, coalesce(plugin, '')::text,
		coalesce(wal_status, ''), active FROM pg_replication_slots ORDER BY 1`
)

// rows are the rows of a query.
type rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
	Close()
}

// each scans every row into the same variables, and has take look at them.
func each(what string, r rows, err error, take func(), into ...any) error {
	if err != nil {
		return fmt.Errorf("look at %s: %w", what, err)
	}
	defer r.Close()
	for r.Next() {
		if err := r.Scan(into...); err != nil {
			return fmt.Errorf("look at %s: %w", what, err)
		}
		take()
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("look at %s: %w", what, err)
	}
	return nil
}

// look reads it.
func look(ctx context.Context, cfg config.Config) (d database, err error) {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return d, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = store.ReadOnly(ctx, conn, func(tx store.Tx) error { return d.read(ctx, tx) })
	return d, err
}

func (d *database) read(ctx context.Context, tx store.Tx) error {
	if err := tx.QueryRow(ctx, serverSQL).Scan(&d.name, &d.role, &d.version, &d.walLevel); err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	d.version, _, _ = strings.Cut(d.version, " ")
	var schema, name string
	var names, kinds []string
	r, err := tx.Query(ctx, tablesSQL)
	err = each("tables", r, err, func() {
		t := table{schema: schema, name: name}
		for i := range names {
			t.columns = append(t.columns, column{names[i], kinds[i]})
		}
		d.tables = append(d.tables, t)
	}, &schema, &name, &names, &kinds)
	if err != nil {
		return err
	}
	r, err = tx.Query(ctx, schemasSQL)
	if err := each("schemas", r, err, func() { d.schemas = append(d.schemas, schema) }, &schema); err != nil {
		return err
	}
	var p publication
	r, err = tx.Query(ctx, publicationsSQL)
	var schemas, tables []string
	err = each("publications", r, err, func() {
		p.published = nil
		for i := range tables {
			p.published = append(p.published, config.JoinTable(schemas[i], tables[i]))
		}
		d.publications = append(d.publications, p)
	}, &p.name, &p.inserts, &p.all, &schemas, &tables)
	if err != nil {
		return err
	}
	var s slot
	r, err = tx.Query(ctx, slotsSQL)
	err = each("slots", r, err, func() { d.slots = append(d.slots, s) }, &s.name, &s.database, &s.plugin, &s.status,
		&s.active)
	return err
}
