package sink_test

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// choosy is a driver that must never hear of a topic that cannot exist.
type choosy struct {
	*sinktest.Broker
	t *testing.T
}

func (c choosy) Partitions(topic string) (int, error) {
	if topic == "" || topic == "a/b" {
		c.t.Errorf("the driver was asked about topic %q", topic)
	}
	return c.Broker.Partitions(topic)
}

// Whatever names a topic that cannot exist, the driver never sees the name: it would ask the brokers about it
// permanently, and Kafka closes the connection on an empty one. Seen to fail with the name not checked at all, before
// the driver is asked, before a record is routed (nothing came back), and before a topic is diverted.
func TestIllegalTopicsNeverReachTheDriver(t *testing.T) {
	refuse := func(topic string) *sink.Reason {
		if topic == "" || topic == "a/b" {
			return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_TOPIC", Text: "is not a name"}
		}
		return nil
	}
	b := sinktest.NewBroker()
	b.SetTopic(topic, 1)
	e := sink.New(choosy{b, t}, sink.Config{Refuse: refuse})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, name := range []string{"", "a/b"} {
		make1 := func(key []byte) *sink.Record { return &sink.Record{Topic: name, Key: key, Cost: 1} }
		e.Hold(sink.Lane{Topic: name, Key: []byte("held")})
		e.Divert(name, sink.WholeTopic, true)
		all := []*sink.Record{make1(nil), make1([]byte("k")), make1([]byte("k")), make1([]byte("held")), make1(nil)}
		if _, err := e.Submit(t.Context(), all[:3]); err != nil {
			t.Fatal(err)
		}
		if err := e.Resume(sink.Lane{Topic: name, Key: []byte("held")}, all[3:4]); err != nil {
			t.Fatal(err)
		}
		if err := e.Insert(all[4]); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(all); {
			some, err := e.Results(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			n += len(some)
			e.Settled(some)
		}
		for i, r := range all {
			want := sink.Rejected
			if i == 2 {
				want = sink.Held // behind the rejected one of its key
			}
			if r.Result != want || want == sink.Rejected && r.Reason.Code != "INVALID_TOPIC" {
				t.Errorf("record %d of topic %q: got result %d, reason %v; want %d", i, name, r.Result, r.Reason, want)
			}
		}
		if e.Diverted(name) || len(e.Troubles()) > 0 {
			t.Errorf("topic %q: got troubles %+v, want none", name, e.Troubles())
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
