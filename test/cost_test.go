package test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// cost is the relay's cost of an event.
type cost struct {
	allocations float64 // of Go, per event
	bytes       float64 // that they take, per event
	calls       float64 // reads and writes of the operating system, per 1,000 events
	statements  float64 // of Postgres, per 1,000 events
	wal         float64 // bytes that journal, marks and state write, per event
	seconds     float64 // of the drain
}

// quietSeconds is a drain's time on a quiet machine, with room. On a busy one batches are smaller, as events come and
// are acknowledged in smaller turns, and the budgets of what batches share grow with the time.
const quietSeconds = 3

// eventCosts are the shapes of load whose cost is watched, with the budget of each: about twice what was measured, as
// the size of batches is a matter of chance, and a tenth more WAL, which is not. There are enough events that a buffer
// which grows by a few MB on a busy machine is not what an event costs. docs/benchmarks.md has the figures.
var eventCosts = []struct {
	shape                          string
	partitions, transactions, rows int
	headers                        string // of each row, in SQL
	budget                         cost
}{
	{"100 rows in a transaction", 6, 500, 100, "NULL", cost{0.6, 300, 100, 10, 780, 0}},
	{"one row in a transaction", 6, 30_000, 1, "NULL", cost{1, 500, 150, 15, 780, 0}},
	{"100 rows in a transaction, 200 partitions", 200, 500, 100, "NULL", cost{1, 400, 200, 12, 780, 0}},
	{"100 rows with headers in a transaction", 6, 500, 100,
		"jsonb_build_object('traceparent', '00-' || md5(i::text) || '-00f067aa0ba902b7-01', 'tenant', 't' || i)",
		cost{0.6, 300, 100, 10, 890, 0}}, // a mark writes the row again, and so its headers
}

// mostDrains are tried before a cost counts as over its budget. A buffer that grows and a turn that a busy machine cut
// short are in some drains; what each event costs is in all of them.
const mostDrains = 5

// The whole relay, with its defaults. Break it catches: an allocation per event anywhere between the two sockets, a
// read or a statement for each event instead of each batch, a journal row that grows. Seen to fail with eight bytes
// allocated for each event that is dispatched.
func TestCostOfAnEventStaysInItsBudget(t *testing.T) {
	harness.Full(t)
	if os.Getenv("CDC_RELAY_TEST_RACE") != "" {
		t.Skip("a relay with the race detector allocates more")
	}
	for _, c := range eventCosts {
		t.Run(c.shape, func(t *testing.T) {
			drain := drains(t, c.partitions, c.transactions, c.rows, c.headers)
			drain() // what a start costs is behind it, and buffers have their size
			got := drain()
			for n := 1; n < mostDrains && len(got.over(c.budget)) > 0; n++ {
				t.Logf("drained once more, as of a drain: %s", strings.Join(got.over(c.budget), "; "))
				got = got.least(drain())
			}
			t.Logf("per event %.2f allocations of %.0f bytes, %.0f bytes of WAL; per 1,000 events %.0f reads and writes, "+
				"%.1f statements; in %.1f s", got.allocations, got.bytes, got.wal, got.calls, got.statements, got.seconds)
			for _, over := range got.over(c.budget) {
				t.Error(over)
			}
		})
	}
}

// least is the smaller of each part.
func (c cost) least(other cost) cost {
	return cost{min(c.allocations, other.allocations), min(c.bytes, other.bytes), min(c.calls, other.calls),
		min(c.statements, other.statements), min(c.wal, other.wal), min(c.seconds, other.seconds)}
}

// over says what is more than the budget, or was not measured.
func (c cost) over(budget cost) (found []string) {
	busy := max(1, c.seconds/quietSeconds)
	for _, part := range []struct {
		name      string
		got, most float64
	}{
		{"allocations per event", c.allocations, budget.allocations},
		{"allocated bytes per event", c.bytes, busy * budget.bytes},
		{"reads and writes per 1,000 events", c.calls, busy * budget.calls},
		{"statements per 1,000 events", c.statements, busy * budget.statements},
		{"bytes of WAL per event", c.wal, budget.wal},
	} {
		if part.got > part.most || part.got <= 0 || math.IsNaN(part.got) {
			found = append(found, fmt.Sprintf("%s: got %.2f, want more than 0 and at most %.2f", part.name, part.got, part.most))
		}
	}
	return found
}

// drains lets a paused relay have a backlog, so that it has full batches however slow the machine is, and looks at what
// it spends from its resuming until every row is marked. What a relay spends by the second, as its proofs of the lease,
// is not what an event costs, and a drain on a busy machine takes many seconds: what the paused relay spends while the
// backlog is made is subtracted for as long as the drain takes, up to nine tenths of the sum.
func drains(t *testing.T, partitions, transactions, rows int, headers string) func() cost {
	// Without images of whole pages: how many there are depends on when the server makes a checkpoint.
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"synchronous_commit": "off",
		"full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB",
		"shared_preload_libraries": "pg_stat_statements"}})
	pg.Exec(t, "CREATE EXTENSION pg_stat_statements")
	s := newScenario(t, pg, harness.Kafka(t))
	s.kafka.CreateTopic(t, s.settings.Topic("costly"), partitions, nil)
	s.relay.Init(t)
	s.start(t)
	ask := func(args ...string) {
		if code, _, said := s.relay.Run(t, args...); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, said)
		}
	}
	done := 0
	return func() cost {
		ask("pause", "--note", "a backlog")
		pg.Exec(t, "SELECT pg_stat_statements_reset()")
		still, began := s.spentSoFar(t), time.Now()
		pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR b IN 1..%d LOOP
			INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers)
			SELECT gen_random_uuid(), 'costly', 'k' || (b * 7 + i) %% 10000, 'made',
			jsonb_build_object('n', b, 'filler', repeat('x', 200)), %s
			FROM generate_series(1, %d) i; COMMIT; END LOOP; END $$`,
			transactions, headers, rows))
		done += transactions * rows
		idle := s.spentSoFar(t).less(still, 1).times(1 / time.Since(began).Seconds())
		pg.Exec(t, "SELECT pg_stat_statements_reset()")
		before, began := s.spentSoFar(t), time.Now()
		ask("resume")
		s.looks(t, fmt.Sprintf("(SELECT count(*) FROM cdc_relay_journal) = %d", done))
		s.looks(t, "NOT EXISTS (SELECT FROM cdc_relay_journal_batch WHERE NOT mirrored)")
		spent := s.spentSoFar(t).less(before, 1)
		took := time.Since(began).Seconds()
		spent = spent.less(idle.times(took), 0.9).times(1 / float64(transactions*rows))
		spent.seconds = took
		return spent
	}
}

// times multiplies each part.
func (c cost) times(factor float64) cost {
	return cost{c.allocations * factor, c.bytes * factor, c.calls * factor, c.statements * factor, c.wal * factor,
		c.seconds}
}

// less subtracts each part of other, but at most a share of what it is subtracted from.
func (c cost) less(other cost, most float64) cost {
	part := func(c, other float64) float64 { return c - min(other, c*most) }
	return cost{part(c.allocations, other.allocations), part(c.bytes, other.bytes), part(c.calls, other.calls),
		part(c.statements, other.statements), part(c.wal, other.wal), c.seconds}
}

// spentSoFar is what the relay has spent since it started, of statements and WAL since they were counted again; calls
// and statements in thousandths, as a cost has them.
func (s *scenario) spentSoFar(t *testing.T) cost {
	t.Helper()
	got := cost{allocations: s.relay.Metric(t, "go_memstats_mallocs_total"),
		bytes: s.relay.Metric(t, "go_memstats_alloc_bytes_total")}
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.relay.PID())) // proc(5)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(io)) {
		var calls float64
		if n, _ := fmt.Sscanf(line, "syscr: %f", &calls); n == 1 {
			got.calls += 1000 * calls
		}
		if n, _ := fmt.Sscanf(line, "syscw: %f", &calls); n == 1 {
			got.calls += 1000 * calls
		}
	}
	said := s.pg.Query(t, `SELECT coalesce(sum(calls), 0) || ' ' || coalesce(sum(wal_bytes), 0) FROM pg_stat_statements
		WHERE query NOT LIKE '%AS looked%' AND query NOT LIKE 'DO %' AND query NOT LIKE '%pg_stat_statements%'
		AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if _, err := fmt.Sscan(said, &got.statements, &got.wal); err != nil {
		t.Fatal(err)
	}
	got.statements *= 1000
	return got
}
