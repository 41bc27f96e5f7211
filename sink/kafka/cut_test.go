package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// cutKinds are the ways in which a connection breaks under load.
var cutKinds = []cutproxy.Kind{cutproxy.InRequest, cutproxy.AfterDelivery, cutproxy.InAnswer, cutproxy.Withhold,
	cutproxy.Late}

// newCutter makes a proxy that breaks every n-th Produce request's connection, in all ways in turn.
func newCutter(t *testing.T, every int) *cutproxy.Proxy {
	random := rand.New(rand.NewPCG(1, 2))
	seen := 0
	proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		if r.APIKey != 0 {
			return cutproxy.Action{}
		}
		if seen++; seen%every != 0 {
			return cutproxy.Action{}
		}
		return cutproxy.Action{
			Kind:  cutKinds[seen/every%len(cutKinds)],
			Delay: time.Duration(random.Int64N(int64(60 * time.Millisecond))),
		}
	})
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// cutCounts says how many cuts of each kind there were.
func cutCounts(p *cutproxy.Proxy) string {
	text := fmt.Sprintf("%d cuts:", p.Cuts())
	for _, k := range cutKinds {
		text += fmt.Sprintf(" %d %s,", p.Count(k), k)
	}
	return text[:len(text)-1]
}

// TestCutConnectionsUnderLoad sends numbered records of many keys to one broker while every third Produce request's
// connection breaks: inside the request, after delivery, inside the answer, by silence, and with the request delivered
// late. Another client must find each record once and each key in order.
//
// Breaks when a resend has another sequence or other bytes, when a buffer is used again while a connection reads it, or
// when an attempt counts as not written although it was.
func TestCutConnectionsUnderLoad(t *testing.T) {
	harness.Full(t)
	cuts := harness.Count(t, "connection cuts")
	cutUnderLoad(t, harness.Kafka(t), cutting{cuts: cuts, every: 3, records: 350 * cuts, window: 400})
}

// cutting is how much to send, with how many cuts at least.
type cutting struct {
	cuts, every     int // every n-th request
	records, window int
}

func cutUnderLoad(t *testing.T, c *harness.Cluster, amount cutting) {
	t.Helper()
	const partitions, keys = 12, 500
	topic := c.Topic(t, "cuts", partitions, nil)
	proxy := newCutter(t, amount.every)
	d, err := New(Config{Brokers: c.Addrs, Dial: proxy.Dial, RequestTimeout: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e := sink.New(d, sink.Config{MaxEvents: amount.window})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	began := time.Now()
	published := make(chan int, 1)
	go func() { published <- settleAll(t, ctx, e) }()
	submitted := 0
	for submitted < amount.records || proxy.Cuts() < amount.cuts {
		n := 1 + rand.IntN(amount.window/2)
		batch := make([]*sink.Record, n)
		for i := range batch {
			batch[i] = numbered(topic, submitted+i, (submitted+i)%keys)
		}
		if _, err := e.Submit(ctx, batch); err != nil {
			t.Fatalf("submit after %d records: %v; status %+v", submitted, err, e.Status())
		}
		submitted += n
	}
	awaitSettled(t, e)
	took := time.Since(began)
	if err := e.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := <-published; got != submitted {
		t.Errorf("published: got %d, want %d", got, submitted)
	}
	wantEachOnceInOrder(t, c.Addrs, judged{topic: topic, end: submitted})
	wantNoDoubts(t, d)
	t.Logf("%d records in %v; %s", submitted, took.Round(time.Millisecond), cutCounts(proxy))
}
