package test

import (
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
var idlePostgres = embedded.PostgresConfig{Settings: map[string]string{"autovacuum": "off", "checkpoint_timeout": "1h"}}

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
	const still = 5 * time.Second
	time.Sleep(2 * time.Second) // for what follows the last event: a final write of the state
	position, processor := pg.Query(t, "SELECT pg_current_wal_insert_lsn()"), cpuTime(t, s.relay.PID())
	time.Sleep(still)
	written := s.number(t, pg.Query(t, fmt.Sprintf("SELECT (pg_current_wal_insert_lsn() - '%s'::pg_lsn)::bigint",
		position)))
	used := cpuTime(t, s.relay.PID()) - processor
	t.Logf("idle for %v: %d bytes of WAL, %v of processor time", still, written, used)
	if most := 512; written > most { // Postgres itself logs running transactions every 15 s, in some 100 bytes
		t.Errorf("WAL written while idle: got %d bytes, want at most %d", written, most)
	}
	if most := still / 20; used > most {
		t.Errorf("processor time while idle: got %v in %v, want at most %v", used, still, most)
	}
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
