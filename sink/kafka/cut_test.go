package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// cutKinds are the ways in which a connection breaks under load.
var cutKinds = []cutproxy.Kind{cutproxy.InRequest, cutproxy.AfterDelivery, cutproxy.InAnswer, cutproxy.Withhold, cutproxy.Late}

// newCutter makes a proxy that breaks every third Produce request's connection, in all ways in turn.
func newCutter(t *testing.T) *cutproxy.Proxy {
	random := rand.New(rand.NewPCG(1, 2))
	seen := 0
	proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
		if r.APIKey != 0 {
			return cutproxy.Action{}
		}
		if seen++; seen%3 != 0 {
			return cutproxy.Action{}
		}
		return cutproxy.Action{
			Kind:  cutKinds[seen/3%len(cutKinds)],
			Delay: time.Duration(random.Int64N(int64(60 * time.Millisecond))),
		}
	})
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// TestCutConnectionsUnderLoad sends numbered records of many keys while every third Produce request's connection breaks:
// inside the request, after delivery, inside the answer, by silence, and with the request delivered late. Another client
// must find each record once and each key in order.
//
// Breaks when a resend has another sequence or other bytes, when a buffer is used again while a connection reads it, or
// when an attempt counts as not written although it was.
func TestCutConnectionsUnderLoad(t *testing.T) {
	const partitions, keys, window = 12, 500, 400
	c := harness.Kafka(t)
	cuts := harness.Count(t, "connection cuts")
	records := 350 * cuts
	topic := c.Topic(t, "cuts", partitions, nil)
	proxy := newCutter(t)
	d, err := New(Config{Brokers: c.Addrs, Dial: proxy.Dial, RequestTimeout: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e := sink.New(d, sink.Config{MaxEvents: window})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()

	began := time.Now()
	published := make(chan int, 1)
	go func() { published <- settleAll(t, ctx, e) }()
	submitted := 0
	for submitted < records || proxy.Cuts() < cuts {
		submitted = submitNumbered(t, ctx, e, topic, submitted, 1+rand.IntN(window/2), keys)
	}
	awaitSettled(t, e)
	took := time.Since(began)
	if err := e.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := <-published; got != submitted {
		t.Errorf("published: got %d, want %d", got, submitted)
	}
	wantEachOnceInOrder(t, c.Addrs, topic, submitted, keys)
	if got := d.Stats(); got.PossibleDuplicates != 0 || len(d.Alarms()) != 0 {
		t.Errorf("stats: got %+v, want no possible duplicates and no alarms", got)
	}
	text := fmt.Sprintf("%d records, %d cuts in %v:", submitted, proxy.Cuts(), took.Round(time.Millisecond))
	for _, k := range cutKinds {
		text += fmt.Sprintf(" %d %s;", proxy.Count(k), k)
	}
	t.Log(text)
}

// submitNumbered submits n records from number first on, and returns the next number.
func submitNumbered(t testing.TB, ctx context.Context, e *sink.Engine, topic string, first, n, keys int) int {
	t.Helper()
	batch := make([]*sink.Record, n)
	for i := range batch {
		batch[i] = numbered(topic, first+i, (first+i)%keys)
	}
	if _, err := e.Submit(ctx, batch); err != nil {
		t.Fatalf("submit after %d records: %v; status %+v", first, err, e.Status())
	}
	return first + n
}

// awaitSettled waits until everything that was submitted is settled.
func awaitSettled(t testing.TB, e *sink.Engine) {
	t.Helper()
	ctx := testContext(t)
	for e.Status().Events > 0 {
		if pause(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("not all came back: %+v", e.Status())
		}
	}
}

// numbered is record number n of a key; the number is in the value.
func numbered(topic string, n, key int) *sink.Record {
	return &sink.Record{
		Topic: topic, Key: fmt.Appendf(nil, "key-%d", key), Value: fmt.Appendf(nil, "%d", n),
		Timestamp: time.Now().UnixMilli(), Cost: 100, Owner: n,
	}
}

// settleAll settles what comes back until the engine is closed, and returns how many were published.
func settleAll(t testing.TB, ctx context.Context, e *sink.Engine) int {
	published := 0
	var batch []*sink.Record
	for {
		var err error
		batch, err = e.Results(ctx, batch[:0])
		if err != nil {
			return published
		}
		for _, r := range batch {
			if r.Result == sink.Published {
				published++
			} else {
				t.Errorf("record %s: got result %d, reason %v", r.Value, r.Result, r.Reason)
			}
		}
		e.Settled(batch)
	}
}

// wantEachOnceInOrder reads the topic with another client: numbers 0 to n-1, each once, rising within a key.
func wantEachOnceInOrder(t testing.TB, brokers []string, topic string, n, keys int) {
	t.Helper()
	times := make([]uint8, n)
	last := make(map[string]int, keys)
	total, duplicated, reordered, lost := 0, 0, 0, 0
	harness.Consume(t, brokers, []string{topic}, func(r *kgo.Record) {
		var number int
		if _, err := fmt.Sscan(string(r.Value), &number); err != nil || number >= n {
			t.Errorf("value %q: %v", r.Value, err)
			return
		}
		total++
		if times[number]++; times[number] > 1 {
			duplicated++
		}
		if before, seen := last[string(r.Key)]; seen && number <= before {
			reordered++
		}
		last[string(r.Key)] = number
	})
	for _, k := range times {
		if k == 0 {
			lost++
		}
	}
	if lost != 0 || duplicated != 0 || reordered != 0 {
		t.Errorf("topic with %d records: %d lost, %d duplicated, %d out of order; want %d records and none of these", total, lost, duplicated, reordered, n)
	}
	if os.Getenv("CI") == "" {
		t.Logf("read back %d records: %d lost, %d duplicated, %d out of order", total, lost, duplicated, reordered)
	}
}
