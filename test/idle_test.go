package test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// idlePostgres does nothing by itself that writes WAL.
var idlePostgres = embedded.PostgresConfig{Settings: map[string]string{"autovacuum": "off", "checkpoint_timeout": "1h",
	"shared_preload_libraries": "pg_stat_statements"}}

// Another database writes, the outbox is idle. Break it catches: a position that is confirmed at commits of the outbox
// only, so that the slot keeps the whole cluster's WAL. Seen to fail with keepalives kept from the ledger.
func TestIdleOutboxKeepsNoWAL(t *testing.T) {
	harness.Full(t)
	pg, other := harness.Postgres(t), harness.Postgres(t)
	s := startScenario(t, pg, harness.Kafka(t))
	other.Exec(t, "CREATE TABLE noise (b text); ALTER TABLE noise ALTER b SET STORAGE EXTERNAL")
	const chunk = 5 // MB
	worst := 0
	for range harness.Count(t, "idle WAL megabytes") / chunk {
		began := time.Now()
		other.Exec(t,
			fmt.Sprintf("INSERT INTO noise SELECT repeat('x', 1000000) FROM generate_series(1, %d); TRUNCATE noise", chunk))
		lag := s.number(t, pg.Query(t, fmt.Sprintf(
			"SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '%s'",
			s.settings.Slot())))
		worst = max(worst, lag)
		time.Sleep(time.Until(began.Add(chunk * time.Second / 50))) // 50 MB/s
	}
	t.Logf("largest lag with 50 MB/s elsewhere: %d MB", worst>>20)
	const twoIntervals = 2 * 50 << 20 // of the default status interval, 1 s
	if worst > twoIntervals {
		t.Errorf("lag: got %d MB, want less than two status intervals' WAL, %d MB", worst>>20, twoIntervals>>20)
	}
	s.pg.WaitConfirmed(t, s.settings.Slot(), 3*time.Second)
}

// Breaks it catches: writes to the database, or a busy loop, while there is nothing to do. Seen to fail with the state
// written each second though nothing was settled.
func TestIdleSystemStaysIdle(t *testing.T) {
	harness.Full(t)
	pg := harness.NewOwnPostgres(t, idlePostgres)
	s := startScenario(t, pg, harness.Kafka(t))
	s.load(t, harness.Workload{Events: 10}).Wait(t)
	s.settled(t)
	harness.Eventually(t, time.Minute, "every row is marked", s.marked(t))
	pg.Exec(t, "CREATE EXTENSION pg_stat_statements")
	time.Sleep(2 * time.Second) // for what follows the last event: a final write of the state
	const tries = 3             // a busy machine may be late with that, but not each time
	var over []string
	for range tries {
		if over = s.idles(t); len(over) == 0 {
			return
		}
		t.Logf("over: %s", strings.Join(over, "; "))
	}
	t.Errorf("while idle, %d times in a row: %s", tries, strings.Join(over, "; "))
}

// idles returns what is above its bound in ten idle seconds.
func (s *scenario) idles(t *testing.T) (over []string) {
	t.Helper()
	const still = 10 * time.Second
	s.pg.Exec(t, "SELECT pg_stat_statements_reset()")
	position, processor := s.pg.Query(t, "SELECT pg_current_wal_insert_lsn()"), cpuTime(t, s.relay.PID())
	time.Sleep(still)
	written := s.number(t, s.pg.Query(t, fmt.Sprintf("SELECT (pg_current_wal_insert_lsn() - '%s'::pg_lsn)::bigint",
		position)))
	used := cpuTime(t, s.relay.PID()) - processor
	statements := s.number(t, s.pg.Query(t,
		"SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"))
	t.Logf("idle for %v: %d bytes of WAL, %v of processor time, %d statements", still, written, used, statements)
	if most := 15 * int(still/time.Second); statements > most { // five to a transaction
		over = append(over, fmt.Sprintf("statements: got %d in %v, want at most %d", statements, still, most))
	}
	if most := 512; written > most { // Postgres itself logs running transactions every 15 s, in some 100 bytes
		over = append(over, fmt.Sprintf("WAL written: got %d bytes, want at most %d", written, most))
	}
	if most := still / 20; used > most {
		over = append(over, fmt.Sprintf("processor time: got %v in %v, want at most %v", used, still, most))
	}
	return over
}

// Break it catches: an idle relay that learns of a request at its next look only, which is seconds later.
func TestIdleRelayHearsOfRequestsByItsStream(t *testing.T) {
	harness.Full(t)
	pg := harness.NewOwnPostgres(t, idlePostgres)
	pg.Exec(t, "CREATE EXTENSION pg_stat_statements")
	s := startScenario(t, pg, harness.Kafka(t))
	looks := func() int {
		return s.number(t, pg.Query(t, `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE
			'%cdc_relay_request%ORDER BY r.kind NOT IN%'`))
	}
	ask := func(args ...string) {
		if code, _, said := s.relay.Run(t, args...); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, said)
		}
	}
	const rest, tries = 5 * time.Second, 5 // between two looks
	took := rest
	for range tries { // a busy machine may take long, but not each time
		before := looks()
		harness.Eventually(t, time.Minute, "the relay looks for requests", func(context.Context) string {
			if looks() == before {
				return "it does not"
			}
			return ""
		})
		began := time.Now()
		ask("pause", "--note", "right after a look")
		s.looks(t, "NOT EXISTS (SELECT FROM cdc_relay_request WHERE finished_at IS NULL)")
		if took = time.Since(began); took < rest/2 {
			return
		}
		ask("resume")
	}
	t.Errorf("a request right after a look: executed after %v, want at once", took)
}

// cpuTime returns a process's CPU time so far, from /proc/<pid>/stat (proc(5)), in ticks of 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	const user, system = 11, 12 // fields after the command's name
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	sum := 0
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += ticks
	}
	return time.Duration(sum) * 10 * time.Millisecond
}
