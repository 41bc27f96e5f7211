package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A broker's disk is replaced: another cluster answers at the address, whose topics are recreated, while one relay runs
// and while another does not. Breaks it catches: what was confirmed and is gone told by no alarm, and verify --repair
// that does not bring it back.
func TestClusterThatWasWipedIsAnAlarmAndIsFilledUpAgain(t *testing.T) {
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night: it starts a broker of its own")
	}
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{})
	running, stopped := startScenario(t, harness.Postgres(t), kafka), startScenario(t, harness.Postgres(t), kafka)
	all := []*scenario{running, stopped}
	for _, s := range all {
		s.load(t, harness.Workload{Events: 300, Writers: 2}).Wait(t)
		s.settled(t)
	}
	stopped.relay.Stop(t)
	kafka.Wipe(t)
	for _, s := range all {
		for _, aggregateType := range s.types {
			kafka.CreateTopic(t, s.settings.Topic(aggregateType), 6, nil)
		}
	}
	stopped.start(t)
	for _, s := range all {
		s.load(t, harness.Workload{Events: 100, Writers: 2, Seed: 2}).Wait(t)
		s.relay.WaitReady(t, time.Minute)
		s.settled(t)
		harness.Eventually(t, time.Minute, "an alarm of each topic", s.asking(t, fmt.Sprintf(
			`SELECT CASE WHEN count(DISTINCT topic) = %d THEN '' ELSE count(*) || ' alarms' END FROM cdc_relay_alarms
			WHERE repair = 'cdc-relay verify --repair'`, len(s.types))))
		t.Logf("alarms: %s", s.pg.Query(t,
			`SELECT string_agg(kind || ' ' || topic || ' ' || detail, E'\n') FROM cdc_relay_alarms`))
		if code, said, _ := s.relay.Run(t, "verify"); code != 1 {
			t.Errorf("verify: got %d, want 1: %s", code, said)
		} else {
			t.Logf("verify: %s", said)
		}
		if code, said, words := s.relay.Run(t, "verify", "--repair", "--yes"); code != 0 {
			t.Errorf("verify --repair: got %d: %s %s", code, said, words)
		} else {
			t.Logf("%s", said)
		}
		s.settled(t)
		if code, said, words := s.relay.Run(t, "verify"); code != 0 {
			t.Errorf("verify after the repair: %d %s %s", code, said, words)
		}
	}
}
