//go:build linux

package replication

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

var filtered = flag.Int("walsenders.rows", 0,
	"rows that each shape of walsenders reads (docs/sizing.md); 0 = measure nothing")

// BenchmarkWalsendersWithRowFilters prints the figures of docs/sizing.md, each measured once, whatever b.N is: what the
// server spends to send a table by one slot, by one with a quarter of the rows, and by four with a quarter each.
func BenchmarkWalsendersWithRowFilters(b *testing.B) {
	if *filtered == 0 {
		b.Skip("takes minutes: measures only with -walsenders.rows")
	}
	pg, err := embedded.StartPostgres(b.Context(), embedded.PostgresConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pg.Stop() }()
	conn, err := pgx.Connect(b.Context(), pg.URL("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	exec := func(sql string) {
		b.Helper()
		if _, err := conn.Exec(b.Context(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`CREATE TABLE box (id uuid DEFAULT gen_random_uuid(), shard int, payload jsonb)`)
	for i, shape := range []struct {
		name  string
		slots int
		where string
	}{
		{"one slot, all rows", 1, ""},
		{"one slot, a quarter", 1, "WHERE (shard = %d)"},
		{"four slots, a quarter each", 4, "WHERE (shard = %d)"},
	} {
		for k := range shape.slots {
			where := shape.where
			if where != "" {
				where = fmt.Sprintf(where, k)
			}
			exec(fmt.Sprintf(`CREATE PUBLICATION w%d_%d FOR TABLE box %s`, i, k, where))
			exec(fmt.Sprintf(`SELECT pg_create_logical_replication_slot('w%d_%d', 'pgoutput')`, i, k))
		}
		exec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP INSERT INTO box (shard, payload) SELECT n %% 4,
jsonb_build_object('n', n, 'text', repeat('x', 250)) FROM generate_series(1, 100) n; COMMIT; END LOOP; END $$`,
			*filtered/100))
		var text string
		if err := conn.QueryRow(b.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&text); err != nil {
			b.Fatal(err)
		}
		end, err := outbox.ParseLSN(text)
		if err != nil {
			b.Fatal(err)
		}
		spent := make([]time.Duration, shape.slots)
		var all sync.WaitGroup
		for k := range spent {
			all.Go(func() { spent[k] = readTo(b, pg.URL("postgres"), fmt.Sprintf("w%d_%d", i, k), end) })
		}
		all.Wait()
		var sum time.Duration
		for k := range spent {
			sum += spent[k]
			exec(fmt.Sprintf(`SELECT pg_drop_replication_slot('w%d_%d')`, i, k))
		}
		b.Logf("%-28s CPU s per million rows of the table: %.1f in all, by walsender %v", shape.name,
			sum.Seconds()*1e6/float64(*filtered), spent)
	}
}

// readTo reads a slot up to the position, and returns what its walsender has used.
func readTo(b *testing.B, url, name string, end outbox.LSN) (spent time.Duration) {
	s, err := Open(b.Context(), Config{URL: url, Slot: name, Publication: name, ApplicationName: "test",
		StatusInterval: time.Second, WALSenderTimeout: time.Minute})
	if err != nil {
		b.Error(err)
		return 0
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() outbox.LSN { return s.Confirmed }) }()
	for s.Received() < end {
		select {
		case batch := <-s.Batches():
			batch.Recycle(false)
		case err := <-ended:
			b.Error(err)
			stop()
			return 0
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	if err != nil {
		b.Error(err)
	}
	for _, field := range strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))[12:14] {
		n, _ := strconv.Atoi(field)
		spent += time.Duration(n) * 10 * time.Millisecond
	}
	stop()
	for batch := range s.Batches() {
		batch.Recycle(false)
	}
	<-ended
	return spent
}
