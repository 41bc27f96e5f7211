package test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// foreignWAL is a writer of rows that are not the outbox's.
type foreignWAL struct {
	written atomic.Int64 // bytes
	stop    func()
}

// writeForeign writes so many megabytes a second, or fewer where the machine is slower, until stop is called.
func writeForeign(t *testing.T, pg *harness.PG, megabytes int) *foreignWAL {
	t.Helper()
	pg.Exec(t, "CREATE TABLE noise (filler text); ALTER TABLE noise ALTER filler SET STORAGE EXTERNAL")
	const row, portions = 8000, 10 // a second has so many portions
	rows := megabytes << 20 / row / portions
	insert := fmt.Sprintf("INSERT INTO noise SELECT repeat('x', %d) FROM generate_series(1, %d)", row, rows)
	ctx, cancel := context.WithCancel(context.Background())
	w, over := &foreignWAL{}, make(chan error, 1)
	conn := pg.Connect(t)
	go func() {
		pace := time.NewTicker(time.Second / portions)
		defer pace.Stop()
		for n := 1; ; n++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				over <- nil
				return
			}
			sql := insert
			if n%(10*portions) == 0 {
				sql = "TRUNCATE noise"
			}
			if _, err := conn.Exec(context.WithoutCancel(ctx), sql); err != nil {
				over <- err
				return
			}
			w.written.Add(int64(rows * row))
		}
	}()
	w.stop = func() {
		if cancel(); over == nil {
			return
		}
		if err := <-over; err != nil {
			t.Errorf("write foreign WAL: %v", err)
		}
		over = nil
	}
	t.Cleanup(w.stop)
	return w
}

// waitWritten waits until so many more megabytes are written.
func (w *foreignWAL) waitWritten(t *testing.T, megabytes int) {
	t.Helper()
	until := w.written.Load() + int64(megabytes)<<20
	harness.Eventually(t, time.Hour, "foreign WAL is written", func(context.Context) string {
		if left := until - w.written.Load(); left > 0 {
			return fmt.Sprintf("%d MB are left", left>>20)
		}
		return ""
	})
}

// keptWAL is what was seen of the slot, once a second: the most of each.
type keptWAL struct {
	kept    int64 // bytes of WAL since the confirmed position
	spooled int64 // events
	beyond  int64 // bytes that restart_lsn keeps, besides the WAL of the last restartLag and what is kept
}

// restartLag is how old the WAL may be that restart_lsn keeps of what is confirmed: the server notes every 15 s, and at
// checkpoints, which transactions run, and lets go of WAL at the note before the last.
const restartLag = 40 * time.Second

// watchKept looks at the slot once a second.
func (s *scenario) watchKept(t *testing.T) (end func() keptWAL) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	over := make(chan struct{})
	var most keptWAL
	var ends []int64 // of WAL, from second to second
	go func() {
		defer close(over)
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-second.C:
			case <-ctx.Done():
				return
			}
			said, err := s.pg.TryQuery(ctx, fmt.Sprintf(`SELECT concat_ws(' ', wal_status, pg_wal_lsn_diff(w, '0/0')::bigint,
				pg_wal_lsn_diff(w, confirmed_flush_lsn)::bigint, pg_wal_lsn_diff(w, restart_lsn)::bigint,
				(SELECT coalesce(sum(events), 0) FROM cdc_relay_spool))
				FROM pg_replication_slots, pg_current_wal_insert_lsn() w WHERE slot_name = '%s'`, s.settings.Slot()))
			var status string
			var at, kept, restart, spooled int64
			if err == nil {
				_, err = fmt.Sscan(said, &status, &at, &kept, &restart, &spooled)
			}
			if err != nil && ctx.Err() != nil {
				return
			}
			if err != nil || status == "lost" {
				t.Errorf("look at the slot: %q, %v", said, err)
				return
			}
			ends = append(ends, at)
			most.kept, most.spooled = max(most.kept, kept), max(most.spooled, spooled)
			if before := len(ends) - int(restartLag/time.Second); before >= 0 {
				most.beyond = max(most.beyond, restart-kept-(at-ends[before]))
			}
		}
	}()
	return func() keptWAL {
		cancel()
		<-over
		return most
	}
}

// waitUnspooled waits until everything that was spooled is sent.
func (s *scenario) waitUnspooled(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 10*time.Minute, "nothing is spooled",
		s.asking(t, `SELECT coalesce(nullif(sum(events), 0) || ' events are spooled', '') FROM cdc_relay_spool`))
}

// Kafka is away while others write WAL. Before that a transaction is open, and WAL is kept for that. Breaks it catches:
// WAL that is kept beyond the budget; a healthy relay that spools; an event that is lost, doubled or out of order when
// it was spooled.
func TestOutageCostsTheBudgetOfWAL(t *testing.T) {
	harness.Full(t)
	budget := harness.Count(t, "wal.budget megabytes")
	const slack = 64 // MiB
	s := startScenario(t, harness.NewOwnPostgres(t, embedded.PostgresConfig{}),
		harness.NewOwnKafka(t, harness.KafkaConfig{}), "wal.budget", fmt.Sprintf("%dMiB", budget),
		"postgres.wal_sender_timeout", fmt.Sprintf("%ds", harness.Count(t, "wal_sender_timeout of an outage seconds")))
	load := s.load(t, harness.Workload{Rate: 1000})
	foreignRate := harness.Count(t, "foreign WAL megabytes a second")
	foreign := writeForeign(t, s.pg, foreignRate)
	load.WaitCommitted(t, 1000, time.Minute)
	healthy := s.watchKept(t)
	open := s.pg.Connect(t)
	_, err := open.Exec(t.Context(), "CREATE TABLE held (n int); COMMIT; BEGIN; INSERT INTO held VALUES (1)")
	if err != nil {
		t.Fatal(err)
	}
	foreign.waitWritten(t, 2*budget)
	held := s.number(t, s.pg.Query(t, fmt.Sprintf("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), "+
		"restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = '%s'", s.settings.Slot())))
	if _, err := open.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if well := healthy(); well.spooled > 0 || held < budget<<20 {
		t.Errorf("with Kafka there: %d events were spooled, %d MiB of WAL kept, %d MiB by restart_lsn; want none spooled, "+
			"and more than the budget kept for the open transaction", well.spooled, well.kept>>20, held>>20)
	}
	away := s.watchKept(t)
	s.kafka.Nodes[0].Stop(t)
	foreign.waitWritten(t, max(5*budget, foreignRate*harness.Count(t, "seconds of a spooled outage")))
	t.Log("the spool has " + s.pg.Query(t, `SELECT coalesce(sum(events), 0) || ' events in ' ||
		pg_total_relation_size('cdc_relay_spool') || ' bytes' FROM cdc_relay_spool`))
	s.kafka.Nodes[0].Start(t)
	back := time.Now()
	load.Stop(t)
	s.settled(t)
	most := away()
	t.Logf("budget %d MiB, at most %d MiB of WAL kept, %d MiB by restart_lsn beside the last %v; %d events spooled, sent "+
		"%v after Kafka was back", budget, most.kept>>20, most.beyond>>20, restartLag, most.spooled,
		time.Since(back).Round(time.Second))
	if most.kept > int64(budget+slack)<<20 || most.beyond > 0 {
		t.Errorf("WAL kept: got %d MiB, and %d MiB by restart_lsn beside the last %v; want at most %d and %d, and none",
			most.kept>>20, most.beyond>>20, restartLag, budget, slack)
	}
	if most.spooled < 1000 {
		t.Errorf("spooled at once: got %d events, want at least 1000", most.spooled)
	}
	foreign.stop()
	s.judgeInOrder(t, "")
	if out, _, _ := s.relay.RunMeasured(t, "verify"); strings.Contains(out, "spool") {
		t.Errorf("verify: got %s, want nothing spooled", out)
	}
}

// The relay is killed and another takes over, from the first second of an outage to the end of what was spooled, and
// is paused in it. Breaks it catches: an event that is in the spool and was confirmed, and that the next process leaves
// out or sends twice; one that starts to send before it has what was spooled.
func TestSpoolSurvivesKillsAndTakeovers(t *testing.T) {
	kills := harness.Count(t, "kills in a spooled outage")
	if kills == 0 {
		t.Skip("not in CI")
	}
	const unrecorded = 50
	s := startScenario(t, harness.NewOwnPostgres(t, embedded.PostgresConfig{}),
		harness.NewOwnKafka(t, harness.KafkaConfig{}), "wal.budget", "16MiB", "postgres.wal_sender_timeout", "4s",
		"limits.max_unrecorded", unrecorded)
	active, standby := s.relay, s.second(t)
	load := s.load(t, harness.Workload{Rate: 1000})
	foreign := writeForeign(t, s.pg, 8)
	load.WaitCommitted(t, 1000, time.Minute)
	kill := func() {
		active.Kill9()
		active, standby = standby, active
		standby.Start(t)
		harness.Eventually(t, time.Minute, "the other relay has the slot", s.asking(t, fmt.Sprintf(
			`SELECT CASE WHEN active THEN '' ELSE 'no one has' END FROM pg_replication_slots WHERE slot_name = '%s'`,
			s.settings.Slot())))
	}
	s.kafka.Nodes[0].Stop(t)
	for n := range kills {
		kill()
		load.WaitCommitted(t, 20_000, 10*time.Minute)
		foreign.waitWritten(t, 32)
		if n == kills/2 {
			if code, out, errors := active.Run(t, "pause", "--note", "a test"); code != 0 {
				t.Fatalf("pause: exit code %d, %s %s", code, out, errors)
			}
		}
	}
	spooled := s.number(t, s.pg.Query(t, "SELECT coalesce(sum(events), 0) FROM cdc_relay_spool"))
	s.kafka.Nodes[0].Start(t)
	if code, out, errors := active.Run(t, "resume"); code != 0 {
		t.Fatalf("resume: exit code %d, %s %s", code, out, errors)
	}
	for range kills {
		load.WaitCommitted(t, 3000, time.Minute)
		kill()
	}
	load.Stop(t)
	foreign.stop()
	s.settled(t)
	report := s.judge(t, 2*kills*unrecorded)
	t.Logf("%d events were spooled in %d kills; %d duplicates", spooled, kills, report.Duplicates())
	if spooled == 0 {
		t.Error("nothing was spooled: the scenario shows nothing")
	}
}
