package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// tooLarge makes one event of a thousand larger than its topic takes, by its id. The truth beside it stays as the
// workload wrote it. All that are dead are replayed again and again, and hold their keys in the meantime: of a
// hundredth, most keys are held permanently after a hundred crashes, and what waits behind them grows faster than it
// goes out.
const tooLarge = `CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF abs(hashtext(NEW.id::text)) % 1000 = 0 THEN NEW.payload := jsonb_build_object('filler', repeat('x', 5000)); END IF;
	RETURN NEW; END $$;
CREATE TRIGGER poison BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION poison()`

// The machine of Postgres crashes, again and again: what was not synced is gone, also commits that no one waited for.
// In the meantime events are parked (topics are missing, and come), die, are replayed and die again, and relays take
// over from each other; the application commits without waiting. Breaks it catches: an outcome that is relied on before
// it is durable, so that the event comes again, or never. Seen to fail with the relay's own commits not waited for: 55
// events doubled.
func TestCrashesThatForgetWhatWasNotSyncedLoseNothing(t *testing.T) {
	harness.Full(t)
	pg := harness.NewForgetfulPostgres(t, embedded.PostgresConfig{})
	kafka := harness.Kafka(t)
	// One event of a thousand dies, and all that are dead do so again at each replay: that is no flood here.
	s := newScenario(t, pg.PG, kafka, "limits.max_unrecorded", 500, "dlq.breaker.count", 100_000)
	crashes, kills, pages := harness.Count(t, "forgetful crashes"), 0, 0
	// A quarter of the events has no topic. Every ten crashes another one comes to be there, so that what is parked does
	// not grow without an end.
	create := func(kind string) {
		kafka.CreateTopic(t, s.settings.Topic(kind), 6, map[string]string{"max.message.bytes": "4000"})
	}
	create("small")
	absent := func(n int) string { return fmt.Sprintf("absent-%d", n) }
	s.types = nil
	for n := range crashes/10 + 1 {
		s.types = append(s.types, "small", "small", "small", absent(n))
	}
	s.relay.Init(t)
	pg.Exec(t, tooLarge)
	// So that no one but the relay makes its commits durable.
	pg.Exec(t, "ALTER DATABASE "+pg.Database+" SET synchronous_commit = off")
	s.start(t)
	active := s.relay
	var standby *harness.Relay // first it is alone, then someone else may take over
	// No faster: the more is written while a server recovers, the longer its next recovery takes, and so on.
	load := s.load(t, harness.Workload{Aggregates: 200, Writers: 4, Rate: 500})
	for n := range crashes {
		if n == crashes/2 {
			standby = s.second(t)
		}
		load.WaitCommitted(t, 300+100*(n%7), time.Minute)
		if n%10 == 9 {
			create(absent(n / 10))
			s.checkpoint(t, load)
			t.Logf("%d crashes, %d events", n, load.Committed())
		}
		switch n % 4 {
		case 1: // the crash meets a take-over
			active.Kill9()
			kills++
		case 3: // and replays
			_, _, _ = active.Run(t, "dlq", "replay", "--all", "--no-wait")
		}
		pages += pg.Crash(t)
		if n%4 == 1 {
			active.Start(t)
		}
		active.WaitReady(t, time.Minute)
		if standby != nil {
			standby.WaitReady(t, time.Minute)
			active, standby = standby, active
		}
	}
	load.Stop(t)
	create(absent(crashes / 10))
	s.settled(t)
	harness.Eventually(t, settlePatience, "replays have ended", s.asking(t,
		"SELECT coalesce(nullif(count(*), 0) || ' requests are open', '') FROM cdc_relay_request WHERE finished_at IS NULL"))
	s.settled(t)
	report := harness.Audit{
		PG: pg.PG, Brokers: kafka.Addrs, Topic: s.settings.Topic, Journal: "cdc_relay_journal",
		Fates: "SELECT DISTINCT original_id::text, 'dead' FROM outbox_events_dlq",
	}.Judge(t)
	t.Log(report)
	if err := report.Err(kills * 500); err != nil {
		t.Error(err)
	}
	t.Logf("%d crashes, %d pages of 4 KiB forgotten, %d kills of the relay, %d duplicates, %s dead letters", crashes,
		pages, kills, report.Duplicates(), pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"))
	if pages == 0 {
		t.Error("nothing was forgotten: the scenario shows nothing")
	}
	if wrong := pg.Query(t, `SELECT count(*) FROM (SELECT id FROM truth WHERE abs(hashtext(id::text)) % 1000 = 0) p
		FULL JOIN outbox_events_dlq d ON d.original_id = p.id WHERE d.original_id IS NULL OR p.id IS NULL`); wrong != "0" {
		t.Errorf("poisoned events without a dead letter, or dead letters of others: got %s, want 0", wrong)
	}
}

// checkpoint lets the writers pause until the relay has confirmed what is committed, and the slot begins behind it, by
// a checkpoint. Postgres makes one every five minutes, and stores how far a slot is read only where it begins again: a
// server that crashed every few seconds for an hour would send all of that hour again, and a relay that gets no further
// than a little beyond its start falls behind permanently. So it does without the pause, where the file system parks
// fewer events per second than the writers write.
func (s *scenario) checkpoint(t *testing.T, load *harness.Load) {
	t.Helper()
	defer load.Pause()()
	here := s.pg.Query(t, "SELECT pg_current_wal_insert_lsn()")
	passes := func(what string) {
		t.Helper()
		ask := fmt.Sprintf("SELECT CASE WHEN %s < '%s' THEN 'it is at ' || %[1]s ELSE '' END FROM pg_replication_slots "+
			"WHERE slot_name = '%[3]s'", what, here, s.settings.Slot())
		harness.Eventually(t, 15*time.Minute, "the slot's "+what+" passes "+here, s.asking(t, ask))
	}
	passes("confirmed_flush_lsn")
	s.pg.Exec(t, "CHECKPOINT")
	passes("restart_lsn")
}
