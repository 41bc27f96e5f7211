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

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	measure     = flag.Bool("journal.measure", false, "measure the shapes of the journal (docs/lab/journal.md)")
	measureRows = flag.Int("journal.rows", 2_000_000,
		"rows in the journal before the measurement; at least 200,000, since a hundredth of them is looked up by thousands")
)

// shape is one way to lay out the journal.
type shape struct {
	name, table, ddl string
	statement        string // settles by this statement; "" = by COPY into table
	chosen           bool   // settles by Settle
	prune            string // one eighth of the rows, or rows by the array that is its parameter
	source           int32  // of the store that settles
}

const rowColumns = `published_at timestamptz NOT NULL DEFAULT now(), "offset" bigint NOT NULL, source integer NOT NULL,
 partition integer NOT NULL, event_id uuid NOT NULL, topic text NOT NULL,
 xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint`

const (
	emptyOwn    = `TRUNCATE cdc_relay_journal, cdc_relay_journal_batch`
	deleteArray = `DELETE FROM %s WHERE source = (SELECT source FROM cdc_relay_source) AND event_id = ANY ($1)`
)

var shapes = []shape{
	{name: "chosen", table: "cdc_relay_journal", ddl: emptyOwn, chosen: true, prune: deleteArray},
	{name: "chosen, INSERT ON CONFLICT", table: "cdc_relay_journal", ddl: emptyOwn, statement: store.JournalSQL},
	{name: "BRIN on xid, no arrays", table: "j", ddl: `CREATE TABLE j (` + rowColumns + `, PRIMARY KEY (source, event_id));
CREATE INDEX ON j USING brin (xid); CREATE INDEX ON j USING brin (published_at)`},
	{name: "8 daily partitions, BRIN on xid", table: "j", ddl: `CREATE TABLE j (` + rowColumns + `,
 PRIMARY KEY (source, event_id, published_at)) PARTITION BY RANGE (published_at); CREATE INDEX ON j USING brin (xid);
DO $$ BEGIN FOR i IN 0..7 LOOP EXECUTE format('CREATE TABLE j%s PARTITION OF j FOR VALUES FROM (%L) TO (%L)', i,
 date_trunc('day', now()) - i * interval '1 day',
 date_trunc('day', now()) - (i - 1) * interval '1 day'); END LOOP; END $$;
CREATE TABLE jd PARTITION OF j DEFAULT`, prune: `DROP TABLE j5`},
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

// BenchmarkJournalShapes prints the figures of docs/lab/journal.md, each measured once, whatever b.N is.
func BenchmarkJournalShapes(b *testing.B) {
	if !*measure {
		b.Skip("takes minutes: measures only with -journal.measure")
	}
	pg := harness.NewOwnPostgres(b, embedded.PostgresConfig{Settings: map[string]string{
		"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "autovacuum": "off"}})
	c := usual(b, pg)
	c.PoolSize = 1
	s := registered(b, c)
	conn := pg.Connect(b)
	var source int32
	must(b, "read the source", conn.QueryRow(b.Context(), `SELECT source FROM cdc_relay_source`).Scan(&source))
	for _, ids := range []string{"v7", "v4"} {
		for _, sh := range shapes {
			exec(b, conn, "DROP TABLE IF EXISTS j CASCADE")
			exec(b, conn, sh.ddl)
			sh.source = source
			measureShape(b, s, conn, ids, sh)
		}
	}
}

func exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

func measureShape(t testing.TB, s *store.Store, conn *pgx.Conn, ids string, sh shape) {
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	next := func(int) string {
		n++
		if ids == "v7" {
			return v7(r, n/10)
		}
		return v4(r)
	}
	preload(t, conn, sh, next)
	exec(t, conn, "ANALYZE "+sh.table+"; CHECKPOINT")
	rows, err := conn.Query(t.Context(),
		`SELECT event_id::text FROM `+sh.table+` TABLESAMPLE SYSTEM (1) ORDER BY random() LIMIT 10000`)
	must(t, "sample", err)
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, "sample", err)
	name := fmt.Sprintf("%s | %-31s |", ids, sh.name)
	for _, size := range []int{10, 1000, 5000} {
		measureSettle(t, s, conn, name, sh, size, next)
	}
	measureLookup(t, s, name, sh, known, next)
	measurePrune(t, conn, name, sh, known)
	t.Logf("%s size %s", name, tableSize(t, conn, sh.table))
}

func measureSettle(t testing.TB, s *store.Store, conn *pgx.Conn, name string, sh shape, size int,
	next func(int) string) {
	rows := min(50_000, size*500)
	took := make([]time.Duration, rows/size)
	from, cpu := walPosition(t, conn), cpuTime(t, conn)+cpuTime(t, s.Pool())
	for i := range took {
		batch := published(size, next)
		start := time.Now()
		switch {
		case sh.chosen:
			must(t, "settle", s.Settle(t.Context(), batch, nil))
		case sh.statement != "":
			must(t, "settle", s.SettleAs(t.Context(), sh.statement, batch))
		default:
			must(t, "settle", copyBatch(t.Context(), conn, sh, batch))
		}
		took[i] = time.Since(start)
	}
	cpu = cpuTime(t, conn) + cpuTime(t, s.Pool()) - cpu
	t.Logf("%s settle %d: median %.2f ms, worst %.1f ms; per 1,000 rows: server CPU %.2f ms, WAL %d kB", name, size,
		ms(median(took)), ms(slices.Max(took)), ms(cpu)*1000/float64(rows), (walPosition(t, conn)-from)/int64(rows))
}

// measurePrune removes rows as the shape does; by arrays of 1,000 ids, or by dropping what holds a day.
func measurePrune(t testing.TB, conn *pgx.Conn, name string, sh shape, known []string) {
	if sh.prune == "" {
		return
	}
	from, cpu, start := walPosition(t, conn), cpuTime(t, conn), time.Now()
	rounds := 1
	if strings.Contains(sh.prune, "$1") {
		rounds = len(known) / 1000
		for i := range rounds {
			_, err := conn.Exec(t.Context(), fmt.Sprintf(sh.prune, sh.table), known[i*1000:(i+1)*1000])
			must(t, "prune", err)
		}
	} else {
		exec(t, conn, sh.prune)
	}
	took := ms(time.Since(start)) / float64(rounds)
	t.Logf("%s prune (1,000 ids or one day): %.1f ms, server CPU %.1f ms, WAL %d kB", name, took,
		ms(cpuTime(t, conn)-cpu)/float64(rounds), (walPosition(t, conn)-from)/int64(rounds)/1000)
}

// preload spreads the rows over the eight days before now, as a week's retention does.
func preload(t testing.TB, conn *pgx.Conn, sh shape, next func(int) string) {
	total := *measureRows
	at := time.Now().Add(-7 * 24 * time.Hour)
	step := 7 * 24 * time.Hour / time.Duration(total)
	i := 0
	_, err := conn.CopyFrom(t.Context(), pgx.Identifier{sh.table},
		[]string{"published_at", "offset", "source", "partition", "event_id", "topic"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if i == total {
				return nil, nil
			}
			i++
			return []any{at.Add(time.Duration(i) * step), int64(i), sh.source, int32(i % 12), next(i), "outbox.event.Order"}, nil
		}))
	must(t, "preload", err)
}

func copyBatch(ctx context.Context, conn *pgx.Conn, sh shape, batch []store.Published) error {
	_, err := conn.CopyFrom(ctx, pgx.Identifier{sh.table}, []string{"source", "event_id", "topic", "partition", "offset"},
		pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
			e := batch[i]
			return []any{sh.source, string(e.ID), e.Topic, e.Partition, e.Offset}, nil
		}))
	return err
}

func measureLookup(t testing.TB, s *store.Store, name string, sh shape, known []string, next func(int) string) {
	statement := fmt.Sprintf(`SELECT u.n FROM unnest($2) WITH ORDINALITY AS u(id, n)
WHERE EXISTS (SELECT 1 FROM %s j WHERE j.source = $1 AND j.event_id = u.id)`, sh.table)
	var hit, miss []time.Duration
	for i := range len(known) / 1000 {
		present, absent := make([][]byte, 1000), make([][]byte, 1000)
		for k := range present {
			present[k], absent[k] = []byte(known[i*1000+k]), []byte(next(k))
		}
		start := time.Now()
		found, err := s.LookupAs(t.Context(), statement, present)
		hit = append(hit, time.Since(start))
		must(t, "look up", err)
		start = time.Now()
		none, err := s.LookupAs(t.Context(), statement, absent)
		miss = append(miss, time.Since(start))
		must(t, "look up", err)
		if found != 1000 || none != 0 {
			t.Fatalf("%s got %d of 1000 known ids and %d absent ones", name, found, none)
		}
	}
	t.Logf("%s look-up of 1,000: median known %.2f ms, absent %.2f ms", name, ms(median(hit)), ms(median(miss)))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// cpuTime returns the CPU time of a connection's server process so far, in steps of 10 ms: unlike the clock it does
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
	must(t, "read the WAL position", conn.QueryRow(t.Context(),
		`SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&bytes))
	return bytes
}

func tableSize(t testing.TB, conn *pgx.Conn, table string) (size string) {
	t.Helper()
	must(t, "read the size", conn.QueryRow(t.Context(), `SELECT pg_size_pretty(sum(pg_total_relation_size(relid)))
FROM (SELECT relid FROM pg_partition_tree($1) UNION SELECT $1::regclass) t`, table).Scan(&size))
	return size
}
