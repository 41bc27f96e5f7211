package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// watched is a scenario whose relay a real Prometheus scrapes.
type watched struct {
	*scenario
	t          *testing.T
	prometheus *harness.Prometheus
}

// The real windows are proven by promtool; here a real Prometheus scrapes a real relay. Breaks it catches: a metric
// that does not show what the alert is for, an alert that never ends (seen to fail with a backlog that is always 0, and
// with the dead letters' alert on their growth only). In the end every query of the dashboard has shown something of
// all this, or is known to be empty then; seen to fail with a label in one that no series has.
func TestAlertsFireAndClearOnARealPrometheus(t *testing.T) {
	harness.Full(t)
	t.Parallel() // it waits for the most part
	s := startScenario(t, harness.Postgres(t), harness.NewOwnKafka(t, harness.KafkaConfig{}), "reconcile.interval", "1s")
	w := watched{s, t, harness.StartPrometheus(t, hastened(t), s.relay)}
	began := time.Now()
	s.load(t, harness.Workload{Events: 300}).Wait(t)
	s.settled(t)
	w.prometheus.Quiet(t, "nothing fires while all is well")

	node := s.kafka.Nodes[0]
	node.Stop(t)
	s.load(t, harness.Workload{Events: 700, Seed: 2}).Wait(t)
	w.prometheus.Fires(t, "they fire while Kafka is away", "OutboxBacklog", "OutboxOldestPending",
		"OutboxNothingPublished", "OutboxBrokerUnavailable")
	node.Start(t)
	s.settled(t)
	w.prometheus.Quiet(t, "they clear when it is back")

	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'bad', 'made', '{}', '[]' FROM generate_series(1, 50)`)
	w.prometheus.Fires(t, "permanent failures fire", "OutboxPermanentFailures", "OutboxDeadLettersGrowing")
	w.prometheus.Wait(t, "open dead letters are never without an alert, also when they have stopped growing",
		func(firing map[string]bool) bool {
			return firing["OutboxDeadLettersOpen"] && !firing["OutboxDeadLettersGrowing"]
		})
	if code, out, errs := s.relay.Run(t, "dlq", "discard", "--all", "--yes", "--note", "a test"); code != 0 {
		t.Fatalf("discard: exit code %d: %s%s", code, out, errs)
	}
	w.prometheus.Quiet(t, "they clear when each is decided")

	s.pg.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no marks today'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	s.load(t, harness.Workload{Events: 50, Seed: 3}).Wait(t)
	w.prometheus.Fires(t, "marks that fail fire", "OutboxMirrorBehind")
	s.pg.Exec(t, "DROP TRIGGER refuse ON outbox_events")
	w.prometheus.Quiet(t, "it clears when rows are marked again")

	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('later', 'k', 'made', '{}')`)
	w.prometheus.Fires(t, "a topic that is missing fires", "OutboxKeysParked", "OutboxNothingPublished")
	s.kafka.CreateTopic(t, s.settings.Topic("later"), 1, nil)
	w.prometheus.Quiet(t, "it clears when the topic is there")
	wantPanels(t, asked(t, w.prometheus, began))
}

// Breaks it catches: a halt, a death, a broker that lost records, or a slot that was lost while no relay ran, without
// an alert. Seen to fail with alarms that are told as 0, and with the age of the process looked for by service.
func TestAlertsOfHaltsDeathsAndLostRecords(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := startScenario(t, harness.Postgres(t), harness.NewOwnKafka(t, harness.KafkaConfig{}))
	// Who scrapes five times a second sees the 0 before the 1 of a relay that starts; who does by the minute does not.
	const increase = "or sum by (service, relay) (increase(cdc_slot_recreations_total[15s])) > 0\n"
	rules := hastened(t)
	if strings.Count(rules, increase) != 1 {
		t.Fatalf("the rules do not have %q", increase)
	}
	w := watched{s, t, harness.StartPrometheus(t, strings.Replace(rules, increase, "\n", 1), s.relay)}
	s.load(t, harness.Workload{Events: 300}).Wait(t)
	s.settled(t)
	w.prometheus.Quiet(t, "nothing fires while all is well")

	s.pg.Exec(t, "ALTER TABLE outbox_events RENAME COLUMN payload TO body")
	w.prometheus.Fires(t, "a halt fires", "CdcRelayHalted", "CdcNoActiveRelay")
	s.pg.Exec(t, "ALTER TABLE outbox_events RENAME COLUMN body TO payload")
	w.prometheus.Quiet(t, "it clears when the column is back")

	admin, topic := s.kafka.Admin(t), s.settings.Topic("order")
	if deleted, err := admin.DeleteTopics(t.Context(), topic); err != nil || deleted.Error() != nil {
		t.Fatalf("delete %s: %v %v", topic, err, deleted.Error())
	}
	s.kafka.CreateTopic(t, topic, 6, nil)
	s.load(t, harness.Workload{Events: 100, Seed: 2}).Wait(t)
	w.prometheus.Fires(t, "a topic that was made again fires", "OutboxAlarmOpen")
	s.relay.Stop(t)
	w.prometheus.Fires(t, "a relay that is gone fires", "CdcNoActiveRelay")
	s.start(t)
	w.prometheus.Wait(t, "it clears when one is there",
		func(firing map[string]bool) bool { return !firing["CdcNoActiveRelay"] })

	s.relay.Stop(t)
	w.prometheus.Fires(t, "it is gone again", "CdcNoActiveRelay") // so that Prometheus knows that its series have ended
	s.pg.Exec(t, fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", s.settings.Slot()))
	s.start(t)
	w.prometheus.Fires(t, "a slot that was lost while no relay ran fires", "CdcSlotLost")
	w.prometheus.Wait(t, "it clears after its window", func(firing map[string]bool) bool { return !firing["CdcSlotLost"] })
}
