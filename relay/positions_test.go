package relay_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A topic is deleted while no relay runs, and created again before or after the next start: the relay that starts has
// seen nothing of what it had. Breaks it catches: a loss that shows in no alarm. Seen to fail with both comparisons
// silenced.
func TestTopicThatWasCreatedAgainWhileNoRelayRanIsAnAlarm(t *testing.T) {
	t.Parallel()
	const topic = "outbox.event.order"
	const raised = "SELECT count(*) FROM cdc_relay_alarms WHERE kind = '" + sink.AlarmOffsetsWentBack +
		"' AND topic = '" + topic + "' AND repair LIKE '%verify --repair%'"
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("created before the start %v", before), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			r, stop := b.start()
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, many(1, 40, 1))
			b.waitRecorded(40)
			mustStop(t, stop)
			r, stop = b.start() // nothing has happened
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, many(41, 10, 1))
			b.waitRecorded(50)
			mustStop(t, stop)
			if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_alarms"); n != "0" {
				t.Fatalf("alarms of a topic that is as it was: got %s, want none", n)
			}
			b.deleteTopic(topic)
			if before {
				b.createTopic(topic, 12)
			}
			r, stop = b.start()
			b.waitRole(r, relay.RoleActive)
			if !before {
				b.createTopic(topic, 12)
				b.pg.Exec(t, many(51, 1, 1))
				b.waitRecorded(51)
			}
			b.waitQuery("alarms", raised, "1")
			mustStop(t, stop)
		})
	}
}

// Kafka was replaced behind its address while no relay ran, and others have filled the topics past the journaled
// offsets. Break it catches: no word of it, or one at each start, or at a start at which nothing has happened.
func TestAnotherClusterAtTheAddressIsAnAlarm(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	run := func(from int, what, query, want string) {
		t.Helper()
		r, stop := b.start()
		b.waitRole(r, relay.RoleActive)
		b.pg.Exec(t, many(from, 5, 1))
		b.waitRecorded(from + 4)
		b.waitQuery(what, query, want)
		mustStop(t, stop)
	}
	const noted = "SELECT count(*) FROM cdc_relay_offset WHERE partition = -1 AND next_offset > 1"
	const alarms = `SELECT coalesce(sum(count), 0) FROM cdc_relay_alarms WHERE kind = '` + sink.AlarmClusterChanged +
		`' AND repair LIKE '%verify --repair%'`
	run(1, "topics whose cluster is noted", noted, "1")
	run(6, "alarms when nothing has happened", alarms, "0")
	b.pg.Exec(t, "UPDATE cdc_relay_offset SET next_offset = 1 WHERE partition = -1") // another cluster's
	run(11, "alarms", alarms, "1")
	run(16, "topics whose cluster is noted", noted, "1")
	if n := b.pg.Query(t, alarms); n != "1" {
		t.Errorf("alarms after another start: got %s, want 1", n)
	}
}

// Each topic is deleted and created again, and others have filled it past the journaled offsets: only its id tells.
// While no relay runs it shows at the next start; the look beside a running relay comes once a minute, at night only.
// Breaks it catches: no word of it, one at each start, or one for a topic that is as it was.
func TestTopicThatWasCreatedAgainAndFilledIsAnAlarm(t *testing.T) {
	t.Parallel()
	const topic = "outbox.event.order"
	const alarms = "SELECT coalesce(sum(count), 0) FROM cdc_relay_alarms WHERE kind = '" + sink.AlarmOffsetsWentBack +
		"' AND topic = '" + topic + "' AND partition = -1 AND repair LIKE '%verify --repair%'"
	b := newBed(t)
	b.deleteTopic(topic)
	b.createTopic(topic, 1)
	run := func(from int, want string) {
		t.Helper()
		r, stop := b.start()
		b.waitRole(r, relay.RoleActive)
		b.pg.Exec(t, many(from, 5, 1))
		b.waitRecorded(from + 4)
		b.waitQuery("topics whose id is noted", "SELECT count(*) FROM cdc_relay_offset WHERE partition = -2", "1")
		b.waitQuery("alarms", alarms, want)
		mustStop(t, stop)
	}
	again := func() {
		b.deleteTopic(topic)
		b.createTopic(topic, 1)
		for range 200 {
			b.produce(topic, "k", nil)
		}
	}
	run(1, "0")
	run(6, "0")
	again()
	run(11, "1")
	run(16, "1")
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_alarms"); n != "1" {
		t.Errorf("alarms: got %s, want the one", n)
	}
	if os.Getenv("CDC_RELAY_NIGHTLY") != "1" {
		return
	}
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(21, 5, 1))
	b.waitRecorded(25)
	again()
	harness.Eventually(t, 5*time.Minute, "an alarm while it runs", func(context.Context) string {
		if n := b.pg.Query(t, alarms); n != "2" {
			return "got " + n
		}
		return ""
	})
}
