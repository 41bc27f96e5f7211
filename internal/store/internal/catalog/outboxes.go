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

// outboxesSQL reads the catalog and takes no lock on the tables; pg_publication_tables would, from 16 on. What may hide
// rows of a table, or bring them from others, has no form.
const outboxesSQL = `SELECT c.oid, n.nspname::text, c.relname::text, coalesce(p.puballtables
  OR r.rel IS NOT NULL{by_schema}, false), 0,
 CASE WHEN c.relkind = 'r' AND NOT c.relrowsecurity AND NOT c.relhasrules AND NOT c.relhassubclass THEN
  (SELECT md5(string_agg(concat_ws(' ', a.atttypid, a.atttypmod, a.attcollation, a.attgenerated, a.attname), ','
   ORDER BY a.attnum)) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
  ELSE '' END,
 c.relkind = 'r' AND (r.rel IS NULL OR r.rel ->> 'prqual' IS NULL AND r.rel ->> 'prattrs' IS NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_publication p ON p.pubname = $3
LEFT JOIN LATERAL (SELECT to_jsonb(r) AS rel FROM pg_publication_rel r WHERE r.prpubid = p.oid
 AND r.prrelid = c.oid) r ON true
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
