package rabbitmq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Events of two outboxes have one id, and no queue takes the one of them. Break it catches: the other one is sent
// again, and no one counts it. Seen to fail with messages that are told apart by their ids alone.
func TestAReturnedMessageIsNotThatOfAnotherSource(t *testing.T) {
	b := newBed(t)
	const topic = "events.sources"
	b.exchange(t, topic)
	if _, err := b.channel.QueueDeclare(topic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.channel.QueueBind(topic, "one", topic, false, nil); err != nil {
		t.Fatal(err)
	}
	d, err := rabbitmq.New(rabbitmq.Config{URL: "amqp://guest:guest@" + b.proxy.Addr, RoutingKey: "{tenant}",
		IDHeader:       "id",
		RequestTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := sinktest.NewFlow(t, d)
	var records []*sink.Record
	for i, tenant := range []string{"one", "two"} {
		r := &sink.Record{Source: int32(i + 1), Topic: topic, Key: []byte(tenant), Value: []byte(tenant), Cost: 100}
		r.Headers.Add("id", []byte("1"))
		r.Headers.Add("tenant", []byte(tenant))
		r.Headers.Add("x-outbox-source", fmt.Appendf(nil, "7/1/%d", i+1))
		records = append(records, r)
	}
	if _, err := f.Submit(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, "the topic is in trouble", func(context.Context) string {
		for _, r := range f.Troubles() {
			if r.Kind == sink.TopicTrouble {
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.Troubles())
	})
	if err := b.channel.QueueBind(topic, "two", topic, false, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for done := 0; done < len(records); {
		some, err := f.Results(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		done += len(some)
		f.Settled(some)
	}
	if got := b.read(t, topic); len(got) != len(records) {
		t.Errorf("messages: got %d, want %d", len(got), len(records))
	}
}
