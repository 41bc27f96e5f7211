package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// outboxesSQL reads the catalog and takes no lock on the tables; pg_publication_tables would, from 16 on.
const outboxesSQL = `SELECT c.oid, n.nspname::text, c.relname::text, coalesce((SELECT p.puballtables
  OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid){by_schema}
 FROM pg_publication p WHERE p.pubname = $3), false), 0
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname LIKE $1 AND c.relname LIKE $2 AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
 AND NOT c.relispartition ORDER BY n.nspname, c.relname`

// bySchema is of Postgres 15 and newer.
const bySchema = `
  OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)`

// Outboxes lists the tables that the pattern chooses, by their names, and whether the publication has them. Partitions
// are not among them, nor are tables whose rows are not in the WAL. It reads the catalog only.
func (s *Catalog) Outboxes(ctx context.Context, p outbox.Pattern, publication string) (list []record.Named, err error) {
	schema, table := p.Like()
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		var can bool
		err := tx.QueryRow(ctx, `SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`).Scan(&can)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(outboxesSQL, "{by_schema}", map[bool]string{true: bySchema}[can])
		rows, err := tx.Query(ctx, text, schema, table, publication)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.Named])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the outboxes: %w", err)
	}
	return list, nil
}
