package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// publish is the same for plain and partitioned tables: publish_via_partition_root matters to partitions only, and
// makes their rows carry the root's relation. With insert only, REPLICA IDENTITY does not matter and marks are not
// sent.
const publish = `publish = 'insert', publish_via_partition_root = true`

// PublicationSQL creates the publication of the outbox.
func (s *Catalog) PublicationSQL(name string) string { return publicationOf(name, s.db.Names.Outbox) }

func publicationOf(name string, tables ...string) string {
	return "CREATE PUBLICATION " + db.Quote(name) + " FOR TABLE " + strings.Join(tables, ", ") + " WITH (" + publish + ")"
}

// CreatePublication creates the publication if there is none of that name; another's is left as it is, see
// [Catalog.CheckPublication]. It needs the outbox's ownership and CREATE on the database, and must come before the
// slot: a slot that is older than its publication fails forever (SQLSTATE 42704).
func (s *Catalog) CreatePublication(ctx context.Context, name string) error {
	return s.createPublication(ctx, name, s.PublicationSQL(name))
}

// CreatePublicationOf does it for several outboxes.
func (s *Catalog) CreatePublicationOf(ctx context.Context, name string, tables []record.Named) error {
	return s.createPublication(ctx, name, PublicationOfSQL(name, tables))
}

// PublicationOfSQL creates the publication of several outboxes.
func PublicationOfSQL(name string, tables []record.Named) string {
	quoted := make([]string, len(tables))
	for i, t := range tables {
		quoted[i] = t.SQL()
	}
	return publicationOf(name, quoted...)
}

// AddToPublication adds tables, given as SQL names them.
func AddToPublication(name string, tables []string) string {
	return "ALTER PUBLICATION " + db.Quote(name) + " ADD TABLE " + strings.Join(tables, ", ")
}

func (s *Catalog) createPublication(ctx context.Context, name, text string) error {
	err := s.db.Tx(ctx, db.Migrating, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, s.migrationLock()); err != nil {
			return err
		}
		var found bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_publication WHERE pubname = $1)`,
			name).Scan(&found); err != nil || found {
			return err
		}
		_, err := tx.Exec(ctx, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("create publication %q: %w", name, err)
	}
	return nil
}

// publicationSQL reads what Postgres 14 to 18 know: row filters and column lists exist since 15. A table that is in the
// publication by its name, whole, needs no more; only otherwise pg_publication_tables is asked, which from 16 on waits
// for locks on the table. A partitioned table that is published by its partitions' names is not in that.
const publicationSQL = `SELECT pubinsert, pubviaroot, named OR listed IS NOT NULL, coalesce(listed ->> 'rowfilter', ''),
 CASE WHEN listed -> 'attnames' IS NULL THEN NULL ELSE ARRAY(SELECT jsonb_array_elements_text(listed -> 'attnames')) END
FROM (SELECT p.pubinsert, p.pubviaroot, r.rel IS NOT NULL AS named,
 CASE WHEN r.rel IS NULL OR r.rel ->> 'prqual' IS NOT NULL OR r.rel ->> 'prattrs' IS NOT NULL THEN
 (SELECT to_jsonb(t) FROM pg_publication_tables t
 WHERE t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3)
 END AS listed
 FROM pg_publication p
 LEFT JOIN LATERAL (SELECT to_jsonb(r) AS rel FROM pg_publication_rel r WHERE r.prpubid = p.oid
 AND r.prrelid = to_regclass(format('%I.%I', $2::text, $3::text))) r ON true
 WHERE p.pubname = $1) p`

// CheckPublication says what is wrong with the publication; nil means that every row that is inserted into the outbox
// is sent with every mapped column. It reads the catalog only.
func (s *Catalog) CheckPublication(ctx context.Context, name string) ([]record.Problem, error) {
	o, err := s.db.Table(ctx)
	if err != nil {
		return nil, err
	}
	var inserts, viaRoot, has bool
	var filter string
	var columns []string
	err = s.db.One(ctx, db.Reading, func(row pgx.Row) error {
		return row.Scan(&inserts, &viaRoot, &has, &filter, &columns)
	},
		publicationSQL, name, o.Schema, o.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return []record.Problem{{What: fmt.Sprintf("no publication %q", name), Repair: s.PublicationSQL(name)}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("check publication %q: %w", name, err)
	}
	alter := "ALTER PUBLICATION " + db.Quote(name)
	var problems []record.Problem
	add := func(what, repair string) {
		problems = append(problems, record.Problem{What: what, Repair: alter + repair})
	}
	if !inserts {
		add("it does not publish inserts", " SET (publish = 'insert')")
	}
	if o.Partitioned && !viaRoot {
		add("it publishes the partitions under their own names", " SET (publish_via_partition_root = true)")
	}
	if !has {
		add(fmt.Sprintf("table %s is not in it", s.db.Names.Outbox), " ADD TABLE "+s.db.Names.Outbox)
		return problems, nil
	}
	if filter != "" {
		add("it has a row filter, rows that do not match are never sent", " SET TABLE "+s.db.Names.Outbox)
	}
	for _, w := range s.db.MappedColumns() {
		if w.Name != "" && columns != nil && !slices.Contains(columns, w.Name) {
			add(fmt.Sprintf("its column list lacks column %q", w.Name), " SET TABLE "+s.db.Names.Outbox)
		}
	}
	return problems, nil
}
