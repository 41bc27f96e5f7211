package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// backends is how many sessions the relays of this database have, streams included.
func (s *scenario) backends(t *testing.T) int {
	t.Helper()
	return s.number(t,
		s.pg.Query(t,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cdc-relay%'`))
}

// hold waits out a fault, asking at each look, and returns the most that was answered.
func hold(t *testing.T, seconds int, ask func() int) (most int) {
	t.Helper()
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	harness.Eventually(t, time.Duration(seconds)*time.Second+time.Minute, "the fault has lasted",
		func(context.Context) string {
			most = max(most, ask())
			if time.Now().Before(end) {
				return "not yet"
			}
			return ""
		})
	return most
}

// No one answers for synchronous_standby_names, so that no journal row is committed, while the application commits
// without waiting. Breaks it catches: events confirmed, or taken for recorded, before the standby has them; sessions
// that pile up behind the ones that wait; a relay that does not go on. Seen to fail with the journal committed without
// waiting.
func TestSynchronousStandbyAwayIsWaitedFor(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	const unrecorded, pool = 300, 4
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := startScenario(t, pg, harness.Kafka(t), "limits.max_unrecorded", unrecorded, "postgres.pool_size", pool)
	pg.Exec(t, "ALTER DATABASE "+pg.Database+" SET synchronous_commit = local")
	load := s.load(t, harness.Workload{Rate: 300})
	load.WaitCommitted(t, 300, time.Minute)
	pg.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	pg.Exec(t, "SELECT pg_reload_conf()")
	harness.Eventually(t, time.Minute, "the journal waits", func(context.Context) string {
		if n := s.relay.Metric(t, "outbox_unrecorded_events"); n < unrecorded {
			return fmt.Sprintf("%v events unrecorded", n)
		}
		return ""
	})
	seconds := harness.Count(t, "sync standby seconds")
	sessions := hold(t, seconds, func() int { return s.backends(t) })
	recorded := pg.Query(t, "SELECT count(*) FROM cdc_relay_journal")
	confirmed := pg.Query(t, `SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()`)
	pg.Exec(t, "ALTER SYSTEM RESET synchronous_standby_names")
	pg.Exec(t, "SELECT pg_reload_conf()")
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("standby away for %d s: %s journal rows, %d sessions of the relay at most, stream restarts %v",
		seconds, recorded, sessions, s.relay.Metric(t, "cdc_stream_restarts_total"))
	if sessions > pool+1 {
		t.Errorf("sessions of the relay: got %d, want at most %d and the stream", sessions, pool)
	}
	if confirmed != "0" {
		t.Error("everything was confirmed while nothing could be recorded")
	}
}

// The disk of Postgres is full: it can neither write the journal nor, at times, live. Breaks it catches: an event taken
// for recorded that is not; a relay that gives up, or does not go on when there is room again. Seen to fail with a
// refused journal write taken for done.
func TestFullDiskOfPostgresIsWaitedFor(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a full disk is a small tmpfs, which only root can mount")
	}
	disk := t.TempDir()
	for dir := disk; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=192m"); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Dir: filepath.Join(disk, "postgres"),
		Settings: map[string]string{
			"min_wal_size": "32MB", "max_wal_size": "48MB", "shared_buffers": "16MB"}})
	s := startScenario(t, pg, harness.Kafka(t))
	s.load(t, harness.Workload{Events: 300}).Wait(t)
	s.settled(t)
	s.relay.Stop(t)
	s.load(t, harness.Workload{Events: 5000, PayloadBytes: 2000}).Wait(t)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	s.relay.Start(t)
	harness.Eventually(t, time.Minute, "the relay says that the disk is full, or the server has ended",
		func(context.Context) string {
			if strings.Contains(s.relay.Log(t), "No space left on device") || pg.Server.PID() == 0 {
				return ""
			}
			return "its log: " + s.relay.Log(t)
		})
	hold(t, 1, func() int { return 0 })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	ended := pg.Server.PID() == 0
	if ended {
		if err := pg.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.relay.WaitReady(t, time.Minute)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("the server ended itself on the full disk: %v", ended)
}

// fill takes all the room that is left beside the file.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// A migration wants the outbox for itself, again and again, while the relay marks rows, looks for missed ones and reads
// them back. Breaks it catches: a statement of the relay that holds the table for long, so that the migration waits,
// and every writer behind it. Seen to fail with marks that take 6 s.
func TestMigrationsDoNotWaitForTheRelay(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := startScenario(t, harness.Postgres(t), harness.Kafka(t), "reconcile.interval", "1s")
	conn := s.pg.Connect(t)
	load := s.load(t, harness.Workload{Rate: 1000})
	var longest time.Duration
	for range harness.Count(t, "migrations") {
		load.WaitCommitted(t, 100, time.Minute)
		began := time.Now()
		if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE; COMMIT"); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
	}
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("a migration waited for the outbox for at most %v, writers' transactions included",
		longest.Round(time.Millisecond))
	if longest > 5*time.Second {
		t.Errorf("wait for the outbox: got %v, want at most 5 s", longest)
	}
}

// Postgres goes silent for longer than the time-out and then goes on, as behind a network that drops packets. Breaks it
// catches: a relay that waits forever, or that produces though it may have lost the slot; what it had sent sent again.
// Seen to fail with silence not noticed.
func TestFrozenPostgresIsNoticed(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := startScenario(t, pg, harness.Kafka(t), "postgres.wal_sender_timeout", "2s", "postgres.status_interval", "500ms")
	load := s.load(t, harness.Workload{Rate: 500})
	load.WaitCommitted(t, 500, time.Minute)
	restarts := s.relay.Metric(t, "cdc_stream_restarts_total")
	if err := pg.Server.Freeze(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	harness.Eventually(t, time.Minute, "the silence is noticed", s.restarted(t, restarts))
	took := time.Since(began)
	if err := pg.Server.Thaw(); err != nil {
		t.Fatal(err)
	}
	s.relay.WaitReady(t, time.Minute)
	load.WaitCommitted(t, 300, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("noticed after %v; wal_sender_timeout is 2 s", took.Round(time.Millisecond))
}

// The WAL passes 4 GiB, where the low half of a position begins again at zero. Break it catches: positions that are
// compared in halves, or as text. Seen to fail with the high half of a keepalive's position dropped.
func TestPositionsPassFourGigabytes(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	if err := pg.Server.Fast(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Program(t, "pg_resetwal", "-l", "0000000100000000000000FE", "-D", filepath.Join(pg.Server.Dir(), "data"))
	if err := pg.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := startScenario(t, pg, harness.Kafka(t))
	before := pg.Query(t, "SELECT pg_current_wal_lsn()")
	load := s.load(t, harness.Workload{Rate: 1000})
	for range 3 {
		load.WaitCommitted(t, 200, time.Minute)
		pg.Exec(t, "SELECT pg_switch_wal()")
	}
	load.WaitCommitted(t, 200, time.Minute)
	s.relay.Stop(t)
	s.start(t)
	load.WaitCommitted(t, 200, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	after := pg.Query(t, "SELECT confirmed_flush_lsn FROM pg_replication_slots")
	t.Logf("the WAL went from %s to %s", before, after)
	if !strings.HasPrefix(before, "0/F") || !strings.HasPrefix(after, "1/") {
		t.Errorf("positions: got %s to %s, want from 0/F… to 1/…", before, after)
	}
}
