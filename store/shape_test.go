package store_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	measure     = flag.Bool("journal.measure", false, "measure the shapes of the journal (docs/journal.md)")
	measureRows = flag.Int("journal.rows", 2_000_000, "rows in the journal before the measurement")
)

// shape is one way to lay out the journal.
type shape struct {
	name, ddl, insert, lookup, prune string
	copies                           bool
}

const insertRows = `SELECT $1, u.id, u.topic, u.partition, u."offset" FROM unnest($2, $3, $4, $5) AS u(id, topic, partition, "offset")`

const lookupRows = `SELECT u.n FROM unnest($2) WITH ORDINALITY AS u(id, n) WHERE EXISTS (SELECT 1 FROM j WHERE j.source = $1 AND j.event_id = u.id)`

const rowColumns = `published_at timestamptz NOT NULL DEFAULT now(), "offset" bigint NOT NULL, source integer NOT NULL,
 partition integer NOT NULL, event_id uuid NOT NULL, topic text NOT NULL`

var shapes = []shape{
	{name: "one table + id arrays (chosen)", ddl: `CREATE TABLE j (` + rowColumns + `, PRIMARY KEY (source, event_id));
CREATE TABLE b (batch bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
 wal_lsn pg_lsn NOT NULL DEFAULT pg_current_wal_insert_lsn(), published_at timestamptz NOT NULL DEFAULT now(), source integer NOT NULL,
 size integer NOT NULL, mirrored boolean NOT NULL DEFAULT false, ids uuid[] NOT NULL, PRIMARY KEY (source, batch));
ALTER TABLE b ALTER COLUMN ids SET STORAGE EXTERNAL; CREATE INDEX ON b (source, batch) INCLUDE (size) WHERE NOT mirrored`,
		insert: `WITH r AS (INSERT INTO j (source, event_id, topic, partition, "offset") ` + insertRows + ` ON CONFLICT DO NOTHING)
INSERT INTO b (source, size, ids) VALUES ($1, cardinality($2), $2)`,
		prune: `WITH d AS (SELECT ids FROM b ORDER BY batch LIMIT 50) DELETE FROM j WHERE source = 1 AND event_id IN (SELECT unnest(ids) FROM d)`},
	{name: "one table + BRIN on xid", ddl: `CREATE TABLE j (` + rowColumns + `, xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint, PRIMARY KEY (source, event_id));
CREATE INDEX ON j USING brin (xid); CREATE INDEX ON j USING brin (published_at)`,
		insert: `INSERT INTO j (source, event_id, topic, partition, "offset") ` + insertRows + ` ON CONFLICT DO NOTHING`},
	{name: "one table, COPY", ddl: `CREATE TABLE j (` + rowColumns + `, PRIMARY KEY (source, event_id))`, copies: true},
	{name: "8 daily partitions + BRIN on xid", ddl: `CREATE TABLE j (` + rowColumns + `, xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
 PRIMARY KEY (source, event_id, published_at)) PARTITION BY RANGE (published_at); CREATE INDEX ON j USING brin (xid);
DO $$ BEGIN FOR i IN 0..7 LOOP EXECUTE format('CREATE TABLE j%s PARTITION OF j FOR VALUES FROM (%L) TO (%L)', i,
 date_trunc('day', now()) - i * interval '1 day', date_trunc('day', now()) - (i - 1) * interval '1 day'); END LOOP; END $$;
CREATE TABLE jd PARTITION OF j DEFAULT`,
		insert: `INSERT INTO j (source, event_id, topic, partition, "offset") ` + insertRows + ` ON CONFLICT DO NOTHING`,
		prune:  `DROP TABLE j7`},
}

// v7 is a time-ordered id, of a moment so many milliseconds after 2026; v4 a random one.
func v7(r *rand.Rand, millis int) string {
	var b [16]byte
	ms := uint64(1767225600000 + millis)
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	for i := 6; i < 16; i++ {
		b[i] = byte(r.Uint32())
	}
	b[6], b[8] = 0x70|b[6]&0xf, 0x80|b[8]&0x3f
	return uuidText(b)
}

func v4(r *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[6], b[8] = 0x40|b[6]&0xf, 0x80|b[8]&0x3f
	return uuidText(b)
}

func uuidText(b [16]byte) string {
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// TestMeasureJournalShapes prints the figures of docs/journal.md. It judges nothing.
func TestMeasureJournalShapes(t *testing.T) {
	if !*measure {
		t.Skip("measures only with -journal.measure")
	}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{
		"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "autovacuum": "off"}})
	c := usual(t, pg)
	c.PoolSize = 1
	s := registered(t, c)
	conn := pg.Connect(t)
	for _, ids := range []string{"v7", "v4"} {
		for _, sh := range shapes {
			exec(t, conn, "DROP TABLE IF EXISTS j, b CASCADE")
			exec(t, conn, sh.ddl)
			measureShape(t, s, conn, ids, sh)
		}
	}
}

func exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

func measureShape(t *testing.T, s *store.Store, conn *pgx.Conn, ids string, sh shape) {
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	next := func(int) string {
		n++
		if ids == "v7" {
			return v7(r, n/10)
		}
		return v4(r)
	}
	preload(t, conn, next)
	if sh.insert != "" && sh.name[:3] == "one" && sh.prune != "" {
		exec(t, conn, `INSERT INTO b (source, size, ids) SELECT 1, count(*), array_agg(event_id) FROM (SELECT event_id, (row_number() OVER (ORDER BY published_at) - 1) / 1000 g FROM j) x GROUP BY g`)
	}
	exec(t, conn, "ANALYZE j; CHECKPOINT")
	var known [][]byte
	rows, err := conn.Query(t.Context(), `SELECT event_id::text FROM j TABLESAMPLE SYSTEM (1) ORDER BY random() LIMIT 20000`)
	must(t, "sample", err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, "sample", err)
	for _, id := range list {
		known = append(known, []byte(id))
	}
	for _, size := range []int{1000, 5000} {
		settle := func(batch []store.Published) error { return s.SettleAs(t.Context(), sh.insert, batch) }
		if sh.copies {
			settle = func(batch []store.Published) error { return copyBatch(t.Context(), conn, batch) }
		}
		rounds := 100_000 / size
		from, cpu := walPosition(t, conn), cpuTime(t, conn)+cpuTime(t, s.Pool())
		took := make([]time.Duration, rounds)
		for i := range rounds {
			batch := published(size, next)
			start := time.Now()
			must(t, "settle", settle(batch))
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		t.Logf("%s | %-33s | batch %d: median %.2f ms, worst %.1f ms, server CPU %.2f ms, %.0f bytes of WAL per row", ids, sh.name, size,
			ms(took[rounds/2]), ms(took[rounds-1]), ms(cpuTime(t, conn)+cpuTime(t, s.Pool())-cpu)/float64(rounds),
			float64(walPosition(t, conn)-from)/100_000)
	}
	measureLookup(t, s, ids, sh, known, next)
	if sh.prune != "" {
		from, start := walPosition(t, conn), time.Now()
		tag, err := conn.Exec(t.Context(), sh.prune)
		must(t, "prune", err)
		t.Logf("%s | %-33s | prune %s: %.1f ms, %d bytes of WAL", ids, sh.name, tag, ms(time.Since(start)), walPosition(t, conn)-from)
		start = time.Now()
		exec(t, conn, "VACUUM j")
		t.Logf("%s | %-33s | vacuum %.0f ms, size %s", ids, sh.name, ms(time.Since(start)), tableSize(t, conn))
	}
}

// preload spreads the rows over the eight days before now, as a week's retention does.
func preload(t testing.TB, conn *pgx.Conn, next func(int) string) {
	total := *measureRows
	at := time.Now().Add(-7 * 24 * time.Hour)
	step := 7 * 24 * time.Hour / time.Duration(total)
	i := 0
	_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"j"}, []string{"published_at", "offset", "source", "partition", "event_id", "topic"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if i == total {
				return nil, nil
			}
			i++
			return []any{at.Add(time.Duration(i) * step), int64(i), int32(1), int32(i % 12), next(i), "outbox.event.Order"}, nil
		}))
	must(t, "preload", err)
}

func copyBatch(ctx context.Context, conn *pgx.Conn, batch []store.Published) error {
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"j"}, []string{"source", "event_id", "topic", "partition", "offset"},
		pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
			e := batch[i]
			return []any{int32(1), string(e.ID), e.Topic, e.Partition, e.Offset}, nil
		}))
	return err
}

func measureLookup(t *testing.T, s *store.Store, ids string, sh shape, known [][]byte, next func(int) string) {
	var hit, miss []time.Duration
	for i := range len(known) / 1000 {
		start := time.Now()
		found, err := s.LookupAs(t.Context(), lookupRows, known[i*1000:(i+1)*1000])
		hit = append(hit, time.Since(start))
		must(t, "look up", err)
		if found != 1000 {
			t.Fatalf("%s, %s: got %d of 1000 known ids", ids, sh.name, found)
		}
		absent := make([][]byte, 1000)
		for k := range absent {
			absent[k] = []byte(next(k))
		}
		start = time.Now()
		_, err = s.LookupAs(t.Context(), lookupRows, absent)
		miss = append(miss, time.Since(start))
		must(t, "look up", err)
	}
	t.Logf("%s | %-33s | look-up of 1000: median known %.2f ms, absent %.2f ms", ids, sh.name,
		ms(median(hit)), ms(median(miss)))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// cpuTime is what the server process behind a connection has used so far, in steps of 10 ms: unlike the clock it does
// not depend on what else the machine does. Linux only.
func cpuTime(t testing.TB, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) time.Duration {
	t.Helper()
	var pid int
	must(t, "ask for the backend", q.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, "read the backend's times", err)
	var ticks time.Duration
	for _, field := range strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))[12:14] {
		n, err := strconv.Atoi(field)
		must(t, "read the backend's times", err)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func walPosition(t testing.TB, conn *pgx.Conn) (bytes int64) {
	t.Helper()
	must(t, "read the WAL position", conn.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&bytes))
	return bytes
}

func tableSize(t testing.TB, conn *pgx.Conn) string {
	t.Helper()
	var size string
	must(t, "read the size", conn.QueryRow(t.Context(), `SELECT pg_size_pretty(sum(pg_total_relation_size(relid))) FROM (SELECT relid FROM pg_partition_tree('j') UNION SELECT 'j'::regclass) t`).Scan(&size))
	return fmt.Sprint(size)
}
