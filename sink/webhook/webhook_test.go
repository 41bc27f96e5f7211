package webhook_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asReceiver) != "" {
		receive()
	}
	harness.Main(m)
}

// bed is a receiver with a proxy before it.
type bed struct {
	*harness.Receiver
	proxy *cutproxy.Plain

	mu      sync.Mutex
	refuses map[string]int // the answer, by path; guarded by mu
}

// newBed starts both. Answer may be nil, and then decides nothing.
func newBed(t *testing.T, answer func(http.ResponseWriter, harness.Delivery)) *bed {
	t.Helper()
	b := &bed{refuses: map[string]int{}}
	b.Receiver = harness.NewReceiver(t, func(w http.ResponseWriter, d harness.Delivery) {
		b.mu.Lock()
		status := b.refuses[d.Path]
		b.mu.Unlock()
		switch {
		case status != 0:
			http.Error(w, "not here, or not for you", status)
		case string(d.Body) == "poison":
			http.Error(w, "no number", http.StatusUnprocessableEntity)
		case answer != nil:
			answer(w, d)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	b.proxy = cutproxy.StartPlain(t, b.Addr)
	return b
}

// driver makes one that goes through the proxy.
func (b *bed) driver(t *testing.T, change func(*webhook.Config)) *webhook.Driver {
	t.Helper()
	c := webhook.Config{
		URL: "http://" + b.proxy.Addr + "/hooks/", IDHeader: "id", ContentType: "application/json", UserAgent: "cdc-relay",
		Faults: []int{400, 413, 415, 422}, Retried: []int{409}, Timeout: 5 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	d, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // of a test that is skipped
	return d
}

// read returns the receiver's messages of a topic.
func (b *bed) read(t *testing.T, topic string) (found []sinktest.Message) {
	t.Helper()
	for i, d := range b.Deliveries("/hooks/" + topic) {
		found = append(found, messageOf(t, d, topic, i))
	}
	return found
}

// messageOf takes a delivery back to what the record was.
func messageOf(t *testing.T, d harness.Delivery, topic string, number int) sinktest.Message {
	m := sinktest.Message{Topic: topic, Offset: int64(number), Value: d.Body}
	if d.Header.Get("X-Outbox-Tombstone") == "true" {
		m.Value = nil
	}
	if keys := d.Header.Values("X-Outbox-Key"); len(keys) > 0 {
		key, err := url.PathUnescape(keys[0])
		if err != nil {
			t.Errorf("key %q: %v", keys[0], err)
		}
		m.Key = []byte(key)
	}
	if id := d.Header.Get("Webhook-Id"); id == "" || d.Header.Get("Idempotency-Key") != `"`+id+`"` {
		t.Errorf("webhook-id %q and Idempotency-Key %q are not the same id", id, d.Header.Get("Idempotency-Key"))
	}
	for name, values := range d.Header {
		switch name {
		case "X-Outbox-Key", "X-Outbox-Tombstone", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
			"Idempotency-Key", "Content-Type", "Content-Length", "User-Agent":
			continue
		}
		for _, value := range values {
			m.Headers.Add(strings.ToLower(name), []byte(value))
		}
	}
	return m
}

// TestConformance runs the suite of all drivers on a receiver behind a proxy that cuts. Breaks it catches: see there.
// Seen to fail with the key's header left out.
func TestConformance(t *testing.T) {
	b := newBed(t, nil)
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		return sinktest.Fixture{
			Driver: b.driver(t, nil),
			Topic:  func(t *testing.T, _ int) string { return harness.Unique(t, "topic") },
			Read:   b.read,
			Lacks:  sinktest.Lacks{Timestamps: true, NullHeaders: true, HeaderOrder: true, TopicOrder: true},
			Name: func(name string) (string, bool) {
				name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
				return name, name != "content-type" // which readers of the suite leave out
			},
			Poison: func(topic string, key []byte) *sink.Record {
				return &sink.Record{Topic: topic, Key: key, Value: []byte("poison"), Cost: 100}
			},
			LoseAnswers: b.proxy.LoseAnswers,
			Outage:      b.proxy.Outage,
			Ruins: map[string]func(*testing.T, string) func(){
				"NotFound": func(_ *testing.T, topic string) func() {
					return b.refuse(topic, http.StatusNotFound)
				},
				"Forbidden": func(_ *testing.T, topic string) func() {
					end := b.refuse(topic, http.StatusForbidden)
					b.proxy.Cut()
					return end
				},
			},
			MissingTopic: func(t *testing.T) (string, func()) {
				name := harness.Unique(t, "missing")
				return name, b.refuse(name, http.StatusNotFound)
			},
		}
	})
	if n := b.Overlaps(); n > 0 {
		t.Logf("%d requests came while the receiver still worked on one of their key whose answer was cut off", n)
	}
}

// refuse has the topic's requests answered by the status until the function is called that it returns.
func (b *bed) refuse(topic string, status int) (end func()) {
	set := func(status int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refuses["/hooks/"+topic] = status
	}
	set(status)
	return func() { set(0) }
}

// Connections break before, in and after requests, and the receiver goes away and comes back. Breaks it catches: an
// event lost or out of order, duplicates that were not counted. Seen to fail with requests that are sent again not
// counted.
func TestCutsLoseAndReorderNothing(t *testing.T) {
	b := newBed(t, nil)
	topic := harness.Unique(t, "topic")
	d := b.driver(t, nil)
	f := sinktest.NewFlow(t, d)
	const n = 8000
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Send(sinktest.Events(topic, 0, n))
	}()
	cutproxy.Disturb(b.proxy, f.Progress, done, func() { b.Kill(); b.Start(t) })
	duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), n)
	t.Logf("%d connections were cut, %d duplicates, %d possible", b.proxy.Cuts(), duplicates, d.PossibleDuplicates())
	if b.proxy.Cuts() == 0 || duplicates > int(d.PossibleDuplicates()) {
		t.Errorf("got %d cuts and %d duplicates, %d possible", b.proxy.Cuts(), duplicates, d.PossibleDuplicates())
	}
}

// A receiver that takes its time. Breaks it catches: two requests of a key at a time. Seen to fail with keys spread
// over the lanes one after the other.
func TestLanesSendOneOfAKeyAtATime(t *testing.T) {
	b := newBed(t, func(w http.ResponseWriter, _ harness.Delivery) {
		<-time.After(time.Millisecond) // it works
		w.WriteHeader(http.StatusOK)
		_, _ = fmt.Fprint(w, "thanks")
	})
	topic := harness.Unique(t, "topic")
	f := sinktest.NewFlow(t, b.driver(t, nil))
	const n = 2000
	f.Send(sinktest.Events(topic, 0, n))
	if duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), n); duplicates != 0 || b.Overlaps() != 0 {
		t.Errorf("got %d duplicates and %d requests beside another of their key, want none", duplicates, b.Overlaps())
	}
}
