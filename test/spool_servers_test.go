package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// waitMoreSpooled waits until so many more events are spooled than now.
func (s *scenario) waitMoreSpooled(t *testing.T, more int) {
	t.Helper()
	const spooled = "SELECT coalesce(sum(events), 0) FROM cdc_relay_spool"
	want := s.number(t, s.pg.Query(t, spooled)) + more
	harness.Eventually(t, 2*time.Minute, "more is spooled", s.asking(t,
		fmt.Sprintf(`SELECT CASE WHEN n < %d THEN n || ' events are spooled' ELSE '' END FROM (%s) s (n)`, want, spooled)))
}

// Postgres is killed, again and again, while the relay spools, and once more while it sends what is spooled. Breaks it
// catches: a row of the spool that is confirmed and not on disk; a transaction that is spooled twice because its
// confirmation was lost; a row that comes back after a crash and is sent again.
func TestSpoolSurvivesCrashesOfPostgres(t *testing.T) {
	crashes := harness.Count(t, "postgres crashes in a spooled outage")
	if crashes == 0 {
		t.Skip("not in CI")
	}
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := startScenario(t, pg, harness.NewOwnKafka(t, harness.KafkaConfig{}), "wal.budget", "1MiB",
		"postgres.wal_sender_timeout", "4s")
	load := s.load(t, harness.Workload{Rate: 1000})
	load.WaitCommitted(t, 1000, time.Minute)
	crash := func() {
		t.Helper()
		if err := pg.Server.Kill9(); err != nil {
			t.Fatal(err)
		}
		if err := pg.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.kafka.Nodes[0].Stop(t)
	for range crashes {
		s.waitMoreSpooled(t, 1000)
		crash()
	}
	s.waitMoreSpooled(t, 1000)
	load.Stop(t)
	s.kafka.Nodes[0].Start(t)
	harness.Eventually(t, time.Minute, "some of it is sent", s.asking(t,
		`SELECT CASE WHEN count(*) > 2000 THEN '' ELSE count(*) || ' are journaled' END FROM cdc_relay_journal`))
	crash()
	s.settled(t)
	s.judgeInOrder(t, "")
}

// The server dies while the relay spools, and its synchronous standby is promoted. Before Postgres 17 that has no slot:
// what is spooled comes first then, and what the stream would have brought comes from the table. Breaks it catches: a
// row of the spool that is confirmed before the standby has it; a spool that is forgotten, or skipped, on the new
// timeline.
func TestSpoolSurvivesAPromotion(t *testing.T) {
	if harness.Count(t, "promotions with a spool") == 0 {
		t.Skip("not in CI")
	}
	primary := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	standby := harness.NewStandby(t, primary)
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	s := startScenario(t, primary.Either(standby), harness.NewOwnKafka(t, harness.KafkaConfig{}), "wal.budget", "1MiB",
		"postgres.wal_sender_timeout", "4s")
	load := s.load(t, harness.Workload{Rate: 1000, OnlyKept: true})
	load.WaitCommitted(t, 1000, time.Minute)
	s.kafka.Nodes[0].Stop(t)
	s.waitMoreSpooled(t, 3000)
	load.Stop(t)
	if err := primary.Server.Kill9(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	spooled := s.number(t, standby.Query(t, "SELECT coalesce(sum(events), 0) FROM cdc_relay_spool"))
	s.load(t, harness.Workload{Events: 2000, OnlyKept: true}).Wait(t)
	harness.Eventually(t, time.Minute, "a session on the promoted server", func(context.Context) string {
		return standby.Query(t,
			"SELECT CASE WHEN count(*) > 0 THEN '' ELSE 'none' END FROM pg_replication_slots WHERE active")
	})
	s.kafka.Nodes[0].Start(t)
	s.settled(t)
	t.Logf("PostgreSQL %d: %d events were spooled at the promotion", standby.Server.Version(), spooled)
	s.judge(t, 0)
	if spooled < 3000 {
		t.Errorf("spooled at the promotion: got %d, want at least 3000: the scenario shows nothing", spooled)
	}
}
