package relay_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// wantAll waits until nothing is parked and everything is journaled, and fails unless the topics hold each number
// once, and per key in order.
func (b *bed) wantAll(n int, topics ...string) {
	b.t.Helper()
	harness.Eventually(b.t, 60*time.Second, "nothing parked, everything journaled", func(context.Context) string {
		said := b.pg.Query(b.t,
			"SELECT (SELECT count(*) FROM cdc_relay_journal) || ' journaled, ' || (SELECT count(*) FROM cdc_relay_parked) || "+
				"' parked'")
		if want := fmt.Sprintf("%d journaled, 0 parked", n); said != want {
			return said + ", want " + want
		}
		return ""
	})
	seen, last := map[int]int{}, map[string]int{}
	harness.Consume(b.t, b.c.Kafka.Brokers, topics, func(rec *kgo.Record) {
		var number int
		if _, err := fmt.Sscanf(string(rec.Value), `{"n": %d`, &number); err != nil {
			b.t.Fatalf("value %q: %v", rec.Value, err)
		}
		seen[number]++
		lane := rec.Topic + "/" + string(rec.Key)
		if number < last[lane] {
			b.t.Errorf("lane %s: %d came after %d", lane, number, last[lane])
		}
		last[lane] = number
	})
	for i := 1; i <= n; i++ {
		if seen[i] != 1 {
			b.t.Fatalf("event %d is in the topics %d times, want once", i, seen[i])
		}
	}
}

func (b *bed) createTopic(topic string, partitions int32) {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.c.Kafka.Brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(b.t.Context(), partitions, 1, nil, topic); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) deleteTopic(topic string) {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.c.Kafka.Brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).DeleteTopic(b.t.Context(), topic); err != nil {
		b.t.Fatal(err)
	}
}

// commit commits the numbers from..to, each in a transaction of its own, over so many keys, for an aggregate type.
func (b *bed) commit(aggregateType string, from, to, keys int) {
	b.t.Helper()
	b.pg.Exec(b.t, fmt.Sprintf(`DO $$ BEGIN FOR i IN %d..%d LOOP
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'k' || i %% %d, 'made',
			jsonb_build_object('n', i));
		COMMIT; END LOOP; END $$`, from, to, aggregateType, keys))
}

// Breaks it catches: events of a topic that does not exist which keep others waiting, spend attempts, die, or arrive
// out of order once it is there; a lane that is never given back to the live path; a parked event that does not say
// what it waits for (seen to fail without the topic's trouble as its reason); a status that does not tell of the
// topic, or not that it is well again (seen to fail with either not noted).
func TestEventsOfAMissingTopicWaitParkedWhileOthersFlow(t *testing.T) {
	b := newBed(t)
	b.c.Limits.InFlightEvents = 300 // fewer than the events of the missing topic
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 500, 7)
	b.commit("order", 501, 600, 7)
	harness.Eventually(t, 30*time.Second, "the others are journaled", func(context.Context) string {
		if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "100" {
			return n + " journal rows, want 100"
		}
		return ""
	})
	if said := b.pg.Query(t,
		"SELECT max(retry_count) || ' ' || (SELECT count(*) FROM outbox_events_dlq) FROM cdc_relay_parked"); said != "0 0" {
		t.Errorf("attempts spent and dead letters: got %q, want none", said)
	}
	said := b.pg.Query(t, "SELECT last_error FROM cdc_relay_parked WHERE error_class = 'transient' LIMIT 1")
	if !strings.Contains(said, "outbox.event.absent") {
		t.Errorf("last_error of an event that waits for its topic: got %q, want one that names the topic", said)
	}
	b.waitError(r, "topic outbox.event.absent: its events wait", false)
	b.commit("absent", 601, 650, 7)
	b.createTopic("outbox.event.absent", 4)
	b.commit("absent", 651, 700, 7)
	b.wantAll(700, "outbox.event.absent", "outbox.event.order")
	b.commit("absent", 701, 720, 7)
	b.wantAll(720, "outbox.event.absent", "outbox.event.order")
	harness.Eventually(t, 10*time.Second, "no lane held", func(context.Context) string {
		if n := r.Status().HeldLanes; n != 0 {
			return fmt.Sprintf("%d lanes are held", n)
		}
		return ""
	})
	b.waitError(r, "", true)
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// waitError waits until the status shows the error, and says that it is over or that it is not.
func (b *bed) waitError(r *relay.Relay, text string, over bool) {
	b.t.Helper()
	harness.Eventually(b.t, 30*time.Second, "the newest error in the status", func(context.Context) string {
		if st := r.Status(); !strings.Contains(st.LastError, text) || st.LastErrorOver != over {
			return fmt.Sprintf("%q, over: %v", st.LastError, st.LastErrorOver)
		}
		return ""
	})
}

// Breaks it catches: parked lanes that a restart forgets, so that later events overtake them; rows that nothing makes
// due after the restart.
func TestParkedEventsSurviveARestartInOrder(t *testing.T) {
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 200, 5)
	harness.Eventually(t, 30*time.Second, "all are parked", func(context.Context) string {
		if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"); n != "200" {
			return n + " parked, want 200"
		}
		return ""
	})
	if err := stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	b.commit("absent", 201, 300, 5)
	b.createTopic("outbox.event.absent", 4)
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 301, 400, 5)
	b.wantAll(400, "outbox.event.absent")
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// The templates of topic and key change while events are parked. Breaks it catches: a parked event that goes where
// newer ones go, out of their order; a newer one that waits for it; one that is never tried again. Seen to fail with
// parked events routed again.
func TestParkedEventsKeepTopicAndKeyWhenTemplatesChange(t *testing.T) {
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 50, 5)
	b.waitQuery("parked", "SELECT count(*) FROM cdc_relay_parked", "50")
	mustStop(t, stop)
	b.c.Message.Topic, b.c.Message.Key = "outbox.event.order", "{aggregate_type}-{aggregate_id}"
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 51, 80, 5)
	b.waitRecorded(30)
	b.createTopic("outbox.event.absent", 4)
	b.wantAll(80, "outbox.event.absent", "outbox.event.order")
	for topic, key := range map[string]string{"outbox.event.absent": "k1", "outbox.event.order": "absent-k1"} {
		if got := b.values(topic); len(got) != 5 || len(got[key]) == 0 {
			t.Errorf("%s: got keys %q, want 5 and %s among them", topic, slices.Collect(maps.Keys(got)), key)
		}
	}
	mustStop(t, stop)
}

// Break it catches: a missing topic that fills the window in a catch-up, which then never ends.
func TestMissingTopicDoesNotStopACatchUp(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.Limits.InFlightEvents = 100
	b.commit("absent", 1, 300, 7)
	b.commit("order", 301, 400, 7)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.createTopic("outbox.event.absent", 4)
	b.wantAll(400, "outbox.event.absent", "outbox.event.order")
	mustStop(t, stop)
}

// waitDegraded waits until the only thing that is wrong is the topic, and gives what is said of it.
func (b *bed) waitDegraded(r *relay.Relay, text string) (said string) {
	b.t.Helper()
	harness.Eventually(b.t, bedPatience, "a degraded relay that says "+text, func(context.Context) string {
		st := r.Status()
		if len(st.Degraded) != 1 || !strings.Contains(st.Degraded[0].Text, text) {
			return fmt.Sprintf("got %+v", st.Degraded)
		}
		said = st.Degraded[0].Text
		return ""
	})
	return said
}

// Break it catches: a restart after which no one knows why events are parked. Seen to fail with the reason that is in
// the table not read.
func TestCauseOfParkingOutlivesRestarts(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 20, 5)
	b.waitQuery("parked events", "SELECT count(*) FROM cdc_relay_parked", "20")
	_, why, _ := strings.Cut(b.waitDegraded(r, "outbox.event.absent"), "parked: ")
	for range 2 {
		mustStop(t, stop)
		r, stop = b.start()
		if said := b.waitDegraded(r, why); strings.Count(said, "before this start") > 1 {
			t.Errorf("after a restart: got %q", said)
		}
		b.commit("absent", 21, 22, 5) // parked for a reason that was read from the table
	}
	mustStop(t, stop)
}

// The stream breaks while a topic is in trouble. Breaks it catches: why its events are parked told as what was before
// this start, though the process has seen it itself; a reason from before a start told as long as the trouble lasts.
// Seen to fail with what the parked events say read at each session, and with the reason of a start kept.
func TestAReconnectForgetsNoReasonForParking(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 20, 5)
	b.waitQuery("parked events", "SELECT count(*) FROM cdc_relay_parked", "20")
	said := b.waitDegraded(r, "outbox.event.absent")
	b.pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+
		b.c.Postgres.Slot+"'")
	harness.Eventually(t, bedPatience, "another session", func(context.Context) string {
		if n, role := metric(t, r, "cdc_stream_restarts_total"), r.Status().Role; n == 0 || role != relay.RoleActive {
			return fmt.Sprintf("%v restarts, %s", n, role)
		}
		return ""
	})
	b.commit("order", 21, 30, 5)
	b.waitRecorded(10)
	if now := b.waitDegraded(r, "outbox.event.absent"); now != said {
		t.Errorf("after a reconnect: got %q, want %q still", now, said)
	}
	mustStop(t, stop)

	r, stop = b.start()
	harness.Eventually(t, bedPatience, "the trouble is seen again", func(context.Context) string {
		st := r.Status()
		if len(st.Degraded) != 1 || strings.Contains(st.Degraded[0].Text, "before this start") {
			return fmt.Sprintf("got %+v", st.Degraded)
		}
		return ""
	})
	mustStop(t, stop)
}
