package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// spent is the cost until every row shows the outcome of its event.
type spent struct {
	postgres, relay time.Duration // CPU
	statements      int
	wal             int
}

// Rows without failures, and rows with 1 % refused and 1 % retried, are relayed with and without
// outbox.dead_set and retry_set, in turns. It prints what that costs; docs/benchmarks.md has the figures. Breaks it
// catches: failures looked for so often, or in so many rows, that the marks cost more although nothing fails; a row
// that does not say what became of its event. Seen to fail with the rows of dead letters not shown.
func TestFailuresInRowsCostLittleBesideTheMarks(t *testing.T) {
	harness.Full(t)
	const turns = 3
	rows := harness.Count(t, "rows whose marks are weighed")
	if rows == 0 {
		t.Skip("left out in CI: it takes minutes, and weighs nothing on a busy machine")
	}
	cases := []struct {
		name         string
		sets, failed bool
	}{{"mark_set", false, false}, {"mark_set, dead_set, retry_set", true, false},
		{"mark_set; 1 % dead, 1 % retried", false, true},
		{"mark_set, dead_set, retry_set; 1 % dead, 1 % retried", true, true}}
	all := make([][]spent, len(cases))
	for turn := range turns {
		for i := range cases {
			n := (turn + i) % len(cases)
			t.Run(fmt.Sprintf("%s, turn %d", cases[n].name, turn+1), func(t *testing.T) {
				all[n] = append(all[n], weigh(t, rows, cases[n].sets, cases[n].failed))
			})
		}
	}
	if t.Failed() {
		return
	}
	t.Logf("%d rows, %d turns; median (lowest to highest)", rows, turns)
	figures := func(of func(spent) float64, n int) (median float64, text string) {
		var values []float64
		for _, s := range all[n] {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return values[turns/2], fmt.Sprintf("%.1f (%.1f to %.1f)", values[turns/2], values[0], values[turns-1])
	}
	perMillion := func(x float64) float64 { return x * 1e6 / float64(rows) }
	postgres := func(s spent) float64 { return perMillion(s.postgres.Seconds()) }
	for n, c := range cases {
		_, server := figures(postgres, n)
		_, relay := figures(func(s spent) float64 { return perMillion(s.relay.Seconds()) }, n)
		_, statements := figures(func(s spent) float64 { return perMillion(float64(s.statements)) / 1000 }, n)
		_, wal := figures(func(s spent) float64 { return float64(s.wal) / float64(rows) }, n)
		t.Logf("%s: per million rows: CPU s of Postgres %s, of the relay %s; thousand statements %s; WAL bytes per row %s",
			c.name, server, relay, statements, wal)
	}
	with, _ := figures(postgres, 1)
	without, _ := figures(postgres, 0)
	if most := 1.5; with > most*without {
		t.Errorf("CPU s of Postgres per million rows of which none fails: got %.1f with the sets and %.1f without, want at "+
			"most %.1f times as much", with, without, most)
	}
}

// weigh relays the rows from a server of its own, and waits until they say what became of their events.
func weigh(t *testing.T, rows int, sets, failed bool) spent {
	style := outboxStyles["flags"]
	settings := slices.Concat(style.settings, []any{"message.timestamp", "created_at", "retry.schedule", []string{"1h"},
		"retry.max_attempts", 2, "dlq.breaker.count", 100_000})
	if !sets {
		settings = append(settings, "outbox.dead_set", "", "outbox.retry_set", "")
	}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_wal_size": "8GB",
		"shared_buffers": "512MB", "checkpoint_timeout": "1h", "shared_preload_libraries": "pg_stat_statements"}})
	pg.Exec(t, style.create)
	pg.Exec(t, "CREATE EXTENSION pg_stat_statements")
	s := newScenario(t, pg, harness.Kafka(t), settings...)
	topic := s.settings.Topic("order")
	s.kafka.Configure(t, "max.message.bytes", "4000", topic)
	s.kafka.Configure(t, "message.timestamp.before.max.ms", "3600000", topic)
	s.relay.Init(t)
	large, old := 0, 0
	if failed {
		large, old = 1, 2
	}
	// By hundreds. Those that are tried again have keys of their own, so that nothing waits behind them.
	pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR b IN 0..%d LOOP
		INSERT INTO outbox (%s) SELECT gen_random_uuid(), 'order',
		CASE i WHEN %d THEN 'again ' || b ELSE 'k' || (b * 7 + i) %% 10000 END, 'made',
		jsonb_build_object('n', b, 'filler', repeat('x', CASE i WHEN %d THEN 5000 ELSE 200 END)),
		now() - CASE i WHEN %d THEN interval '2 days' ELSE '0' END FROM generate_series(1, 100) i; COMMIT; END LOOP; END $$`,
		rows/100-1, style.columns, old, large, old))
	pg.Exec(t, "CHECKPOINT")
	pg.Exec(t, "SELECT pg_stat_statements_reset()")
	before, position := serverCPU(t, pg.Server.PID()), pg.Query(t, "SELECT pg_current_wal_insert_lsn()")
	s.start(t)
	if failed {
		s.looks(t, fmt.Sprintf("(SELECT count(*) FROM outbox_dlq) = %d", rows/100))
		s.looks(t, fmt.Sprintf("(SELECT count(*) FROM cdc_relay_parked WHERE retry_count > 0) = %d", rows/100))
		if sets {
			s.looks(t, "NOT EXISTS (SELECT FROM outbox_dlq WHERE shown_at IS NULL)")
			s.looks(t, "NOT EXISTS (SELECT FROM cdc_relay_parked WHERE shown_at IS NULL)")
		}
		s.kafka.Configure(t, "message.timestamp.before.max.ms", "9223372036854775807", topic)
		if code, _, errors := s.relay.Run(t, "retry", "now", "--all"); code != 0 {
			t.Fatalf("retry now: exit code %d: %s", code, errors)
		}
		s.looks(t, "NOT EXISTS (SELECT FROM cdc_relay_parked)")
	}
	s.pg.WaitConfirmed(t, s.settings.Slot(), settlePatience)
	s.looks(t, "NOT EXISTS (SELECT FROM cdc_relay_journal_batch WHERE NOT mirrored)")
	got := spent{postgres: serverCPU(t, pg.Server.PID()) - before, relay: cpuTime(t, s.relay.PID()),
		wal: s.number(t, pg.Query(t, fmt.Sprintf("SELECT pg_current_wal_insert_lsn() - '%s'::pg_lsn", position))),
		statements: s.number(t, pg.Query(t, `SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%AS looked%'
			AND query NOT LIKE '%confirmed_flush_lsn%'
			AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`))}
	dead := map[bool]int{true: rows / 100}[failed]
	says := map[bool]int{true: dead}[sets]
	want := fmt.Sprintf("%d %d", rows-dead, says)
	if said := pg.Query(t, fmt.Sprintf(`SELECT count(*) FILTER (WHERE %s) || ' ' || count(*) FILTER (WHERE %s)
		FROM outbox`, style.published, style.failed)); said != want {
		t.Errorf("rows that say that they are published, and that they failed: got %s, want %s", said, want)
	}
	return got
}

// looks waits until the condition is true; the statements that ask are not counted.
func (s *scenario) looks(t *testing.T, condition string) {
	t.Helper()
	harness.Eventually(t, 2*settlePatience, condition, s.asking(t, "SELECT CASE WHEN "+condition+
		" THEN '' ELSE 'not yet' END AS looked"))
}

// serverCPU returns the CPU time of a Postgres server so far: its postmaster, ended children and living ones.
func serverCPU(t *testing.T, postmaster int) (sum time.Duration) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", postmaster))
	if err != nil || len(lists) == 0 {
		t.Fatalf("list the processes of Postgres: no /proc/%d/task/*/children (%v)", postmaster, err)
	}
	pids := []string{fmt.Sprint(postmaster)}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that ended has none
		pids = append(pids, strings.Fields(string(text))...)
	}
	for n, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue // it has ended, and counts for the postmaster now
		}
		const user, ofChildren = 11, 13 // fields after the command's name; the next one is the system's
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		times := []int{user, user + 1}
		if n == 0 {
			times = append(times, ofChildren, ofChildren+1)
		}
		for _, at := range times {
			var ticks int
			if _, err := fmt.Sscan(fields[at], &ticks); err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
