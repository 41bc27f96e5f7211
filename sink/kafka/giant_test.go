package kafka

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One event of 3 MiB is among 10,000, on a topic of a real broker that takes 1 MiB. Breaks it catches: a refusal
// without size and limit, neighbours that fail with it or wait for it, followers that are sent before it is decided
// upon.
func TestKafkaGiantAmongManyFailsAlone(t *testing.T) {
	harness.Full(t)
	c := harness.Kafka(t)
	const n, keys, giant = 10_000, 100, 5_003
	topic := c.Topic(t, "giant", 4, nil)
	d := newUnowned(t, c.Addrs, func(*Config) {})
	e := sink.New(d, sink.Config{})
	defer func() {
		if err := e.Close(testContext(t)); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	ctx := testContext(t)
	send := func(spoil bool) (records []*sink.Record, last time.Duration) {
		t.Helper()
		records = make([]*sink.Record, n)
		for i := range records {
			records[i] = &sink.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%keys), Value: fmt.Appendf(nil, "%d", i),
				Timestamp: time.Now().UnixMilli(), Cost: 700}
			if spoil && i == giant {
				records[i].Value, records[i].Cost = bytes.Repeat([]byte("g"), 3<<20), 3<<20+700
			}
		}
		began := time.Now()
		go func() { _, _ = e.Submit(ctx, records) }()
		for got := 0; got < n; {
			results, err := e.Results(ctx, nil)
			if err != nil {
				t.Fatalf("results: %v after %d", err, got)
			}
			got += len(results)
			for _, r := range results {
				if r.Result == sink.Published {
					last = max(last, r.At.Sub(began))
				}
			}
			e.Settled(results)
		}
		return records, last
	}
	send(false) // warm
	_, usual := send(false)
	records, took := send(true)
	for i, r := range records {
		want := sink.Published
		switch {
		case i == giant:
			want = sink.Rejected
		case i > giant && i%keys == giant%keys:
			want = sink.Held
		}
		if r.Result != want {
			t.Fatalf("record %d: got result %d, reason %v; want %d", i, r.Result, r.Reason, want)
		}
	}
	reason := records[giant].Reason
	if reason.Class != outbox.Permanent || reason.Code != "MESSAGE_TOO_LARGE" ||
		!strings.Contains(reason.Text, "takes 31458") || !strings.Contains(reason.Text, "max.message.bytes is 1048588") {
		t.Errorf("reason: got %+v, want permanent with size and limit", reason)
	}
	t.Logf("the last of the others arrived after %v, without the giant after %v", took, usual)
	if took > 2*usual+time.Second {
		t.Errorf("the last of the others arrived after %v, want at most a second more than twice the usual %v", took, usual)
	}
}
