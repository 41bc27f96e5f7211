package relay_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// refuse makes Kafka answer the code to each batch that holds the event {"n": 10} of key k0.
func (b *bed) refuse(code *kerr.Error) *kfake.FaultHandle {
	return b.broker.Cluster().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "outbox.event.order", Partitions: []int32{verify.Murmur2([]byte("k0"), 12)},
		Err: code, Count: -1,
		When: func(r kmsg.Request) bool {
			for _, topic := range r.(*kmsg.ProduceRequest).Topics {
				for _, p := range topic.Partitions {
					if bytes.Contains(p.Records, []byte(`{"n": 10}`)) {
						return true
					}
				}
			}
			return false
		},
	})
}

// Kafka's own refusals that may pass go through the policy of retries. Breaks it catches: a code of class transient
// whose event is dead at once, or tried past the policy; followers that overtake it.
func TestKafkaRefusalThatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.InvalidTimestamp, kerr.PolicyViolation} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.c.Retry.Schedule = []config.Duration{config.Duration(1500 * time.Millisecond)}
			fault := b.refuse(code)
			r, stop := b.start()
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, many(1, 100, 5))
			b.waitQuery("the event is parked",
				"SELECT retry_count || ' ' || error_class || ' ' || split_part(last_error, ':', 1) FROM cdc_relay_parked WHERE "+
					"payload = '{\"n\": 10}'",
				"1 transient "+code.Message)
			b.waitRecorded(81)
			fault.Remove()
			b.waitRecorded(100)
			b.waitNoneHeld(r)
			mustStop(t, stop)
			b.wantNumbers("outbox.event.order", 100)
			if n := metric(t, r, "kafka_produce_requests_total", "code="+code.Message); n < 1 {
				t.Errorf("requests answered %s: got %v, want at least 1", code.Message, n)
			}
		})
	}
}

// Breaks it catches: an event that a broker stumbles over which stops its partition permanently, or takes others with
// it; one that is guilty before its partition has taken anything else (its first round spends no attempt), or never.
// Seen to fail with an attempt spent in doubt.
func TestEventThatTheBrokerStumblesOverIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Retry.MaxAttempts = 1
	b.createTopic("outbox.event.other", 1)
	b.refuse(kerr.UnknownServerError)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	// alone, so that nothing else of the partition can be taken before it
	b.pg.Exec(t, insert("order", "k0", `{"n": 10}`, ""))
	others := 0
	harness.Eventually(t, 30*time.Second, "the event is set aside", func(context.Context) string {
		others++ // shows that not everything is in trouble
		b.pg.Exec(t, insert("other", "k", `{"n": 0}`, ""))
		if got := b.pg.Query(t,
			"SELECT coalesce(max(retry_count || ' ' || error_class), '') FROM cdc_relay_parked"); got != "0 transient" {
			return "parked: " + got
		}
		return ""
	})
	neighbours, _ := sickKeys(verify.Murmur2([]byte("k0"), 12), 3)
	b.commitTo(neighbours, 11, 40)
	harness.Eventually(t, 30*time.Second, "the event is dead", func(context.Context) string {
		others++
		b.pg.Exec(t, insert("other", "k", `{"n": 0}`, ""))
		if b.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq") != "1" {
			return "there is no dead letter"
		}
		return ""
	})
	b.waitRecorded(30 + others)
	b.waitNoneHeld(r)
	const want = "1 transient UNKNOWN_SERVER_ERROR"
	got := b.pg.Query(t, "SELECT attempts || ' ' || error_class || ' ' || error_code FROM outbox_events_dlq")
	if got != want {
		t.Errorf("dead letter: got %q, want %q", got, want)
	}
	mustStop(t, stop)
}
