package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

const patience = 30 * time.Second

// collect waits for n results and settles them.
func collect(t *testing.T, f *sinktest.Flow, n int) (all []*sink.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(all) < n {
		some, err := f.Results(ctx, nil)
		if err != nil {
			t.Fatalf("got %d of %d results: %v; status %+v", len(all), n, err, f.Status())
		}
		all = append(all, some...)
	}
	f.Settled(all)
	return all
}

func submit(t *testing.T, f *sinktest.Flow, records ...*sink.Record) {
	t.Helper()
	if _, err := f.Submit(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

// awaitTrouble waits until the engine reports trouble of the kind, and gives its reason.
func awaitTrouble(t *testing.T, f *sinktest.Flow, kind sink.Trouble) (reason string) {
	t.Helper()
	harness.Eventually(t, patience, "there is trouble", func(context.Context) string {
		for _, r := range f.Troubles() {
			if r.Kind == kind && !r.Since.IsZero() {
				reason = r.Reason
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.Troubles())
	})
	return reason
}

// Breaks it catches: an event that is refused permanently and waits, or that is refused for now and dies at once; a
// reason that does not say what the receiver said, or that shows the URL's path or all of a long answer. Seen to fail
// with the list of faults not looked at, with 409 taken permanently, with the whole answer shown, and with the URL in
// the error.
func TestTheEventsFaultsAreRefusals(t *testing.T) {
	b := newBed(t, func(w http.ResponseWriter, d harness.Delivery) {
		status, _ := strconv.Atoi(string(d.Body))
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, "because\x1b[31m of "+strings.Repeat("x", 100_000))
	})
	d := b.driver(t, func(c *webhook.Config) { c.URL += "secret-token" })
	f := sinktest.NewFlow(t, d)
	for status, class := range map[int]outbox.ErrorClass{
		400: outbox.Permanent, 413: outbox.Permanent, 415: outbox.Permanent, 422: outbox.Permanent, 409: outbox.Transient,
	} {
		r := &sink.Record{Topic: "orders", Key: strconv.AppendInt(nil, int64(status), 10), Cost: 100}
		r.Value = r.Key
		submit(t, f, r)
		collect(t, f, 1)
		if r.Result != sink.Rejected || r.Reason.Class != class || r.Reason.Code != fmt.Sprintf("HTTP_%d", status) {
			t.Errorf("%d: got result %d, reason %+v; want it rejected as %s", status, r.Result, r.Reason, class)
			continue
		}
		text := r.Reason.Text
		if !strings.Contains(text, `because\x1b[31m of xxx`) || !strings.Contains(text, "endpoint orders (http://127") ||
			strings.Contains(text, "secret-token") || len(text) > 400 {
			t.Errorf("%d: got the reason %q", status, text)
		}
	}
}

// Breaks it catches: an answer that is about the endpoint taken for the event's fault, or for a delivery; the trouble
// of one lane taken for the topic's, and the other way round; a wait that does not end when the endpoint is well. Seen
// to fail with 500 taken for the topic's, and with 404 taken for a fault.
func TestOtherAnswersAreTheEndpointsAndWait(t *testing.T) {
	for status, kind := range map[int]sink.Trouble{
		401: sink.TopicTrouble, 403: sink.TopicTrouble, 404: sink.TopicTrouble, 405: sink.TopicTrouble,
		418: sink.TopicTrouble, 300: sink.TopicTrouble,
		408: sink.PartitionTrouble, 425: sink.PartitionTrouble, 429: sink.PartitionTrouble, 500: sink.PartitionTrouble,
		502: sink.PartitionTrouble, 503: sink.PartitionTrouble, 504: sink.PartitionTrouble,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			var well atomic.Bool
			b := newBed(t, func(w http.ResponseWriter, _ harness.Delivery) {
				if well.Load() {
					w.WriteHeader(http.StatusAccepted)
				} else {
					http.Error(w, "not now", status)
				}
			})
			topic := harness.Unique(t, "topic")
			d := b.driver(t, nil)
			f := sinktest.NewFlow(t, d)
			began := time.Now()
			submit(t, f, sinktest.Events(topic, 0, 20)...)
			if reason := awaitTrouble(t, f, kind); !strings.Contains(reason, "not now") {
				t.Errorf("reason: got %q, want what the endpoint said", reason)
			}
			if !d.AnsweredSince(began) {
				t.Error("AnsweredSince: got false, want true: it has answered")
			}
			well.Store(true)
			for _, r := range collect(t, f, 20) {
				if r.Result != sink.Published {
					t.Errorf("got result %d, reason %v; want it published", r.Result, r.Reason)
				}
			}
			if duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), 20); duplicates > 0 {
				t.Errorf("got %d duplicates, want none", duplicates)
			}
		})
	}
}

// Breaks it catches: a redirect that is followed, so that an answer decides where events go; one that counts as a
// delivery. Seen to fail with requests sent by http.Client.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := harness.NewReceiver(t, nil)
	b := newBed(t, func(w http.ResponseWriter, _ harness.Delivery) {
		w.Header().Set("Location", "http://"+elsewhere.Addr+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	f := sinktest.NewFlow(t, b.driver(t, nil))
	submit(t, f, sinktest.Events("orders", 0, 1)...)
	if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "redirects are not followed") {
		t.Errorf("reason: got %q", reason)
	}
	if found := elsewhere.Deliveries(""); len(found) > 0 {
		t.Errorf("got %d events elsewhere, want none", len(found))
	}
}

// The endpoint answers 429 and asks for a second. Breaks it catches: lanes that go on asking in the meantime; an end of
// the silence that no one notices. Seen to fail with the header not looked at, and with only the lane that was told
// silent.
func TestRetryAfterIsKeptByEveryLane(t *testing.T) {
	var first, early atomic.Int64 // when the first request came, and how many came too early
	b := newBed(t, func(w http.ResponseWriter, d harness.Delivery) {
		if first.CompareAndSwap(0, d.At.UnixNano()) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if d.At.Sub(time.Unix(0, first.Load())) < time.Second {
			early.Add(1)
		}
	})
	f := sinktest.NewFlow(t, b.driver(t, nil))
	topic := harness.Unique(t, "topic")
	records := sinktest.Events(topic, 0, 100)
	submit(t, f, records[0])
	if reason := awaitTrouble(t, f, sink.PartitionTrouble); !strings.Contains(reason, "answered 429") {
		t.Errorf("reason: got %q", reason)
	}
	submit(t, f, records[1:]...)
	collect(t, f, 100)
	if early.Load() > 0 {
		t.Errorf("got %d requests within the second, want none", early.Load())
	}
	if duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), 100); duplicates > 0 {
		t.Errorf("got %d duplicates, want none", duplicates)
	}
}

// Breaks it catches: an endpoint that wants no more and is asked again and again. Seen to fail with 410 taken for any
// other answer.
func TestGoneIsNotAskedAgain(t *testing.T) {
	var asked atomic.Int64
	b := newBed(t, func(w http.ResponseWriter, _ harness.Delivery) {
		asked.Add(1)
		w.WriteHeader(http.StatusGone)
	})
	f := sinktest.NewFlow(t, b.driver(t, func(c *webhook.Config) { c.Lanes = 1 }))
	submit(t, f, sinktest.Events("orders", 0, 1)...)
	if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "it wants no more events") {
		t.Errorf("reason: got %q", reason)
	}
	submit(t, f, sinktest.Events("other", 0, 1)...) // to see that time passes for the endpoint
	awaitTrouble(t, f, sink.TopicTrouble)
	if n := asked.Load(); n > 2 {
		t.Errorf("got %d requests, want one of each topic", n)
	}
}

// One event is never answered. Breaks it catches: a wait without a bound; a lane in trouble that keeps others from
// sending; a resend after silence that is not counted. Seen to fail without the driver's own deadline, and with the
// resend not counted.
func TestSilenceEndsAndHoldsUpOneLane(t *testing.T) {
	release := make(chan struct{})
	b := newBed(t, func(w http.ResponseWriter, d harness.Delivery) {
		if string(d.Body) == "000000003" {
			<-release
		}
		w.WriteHeader(http.StatusOK)
	})
	topic := harness.Unique(t, "topic")
	d := b.driver(t, func(c *webhook.Config) { c.Timeout = 200 * time.Millisecond })
	f := sinktest.NewFlow(t, d)
	records := sinktest.Events(topic, 0, 170)
	submit(t, f, records...)
	if reason := awaitTrouble(t, f, sink.PartitionTrouble); !strings.Contains(reason, "no answer for 200ms") {
		t.Errorf("reason: got %q", reason)
	}
	done := collect(t, f, 17*7) // at most three keys share a lane
	for _, r := range done {
		if string(r.Key) == "key-3" && string(r.Value) >= "000000003" {
			t.Fatalf("event %s of the silent key has result %d", r.Value, r.Result)
		}
	}
	harness.Eventually(t, patience, "it is sent again", func(context.Context) string {
		if d.PossibleDuplicates() == 0 {
			return "no possible duplicate"
		}
		return ""
	})
	close(release)
	collect(t, f, len(records)-len(done))
	if duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), 170); duplicates > int(d.PossibleDuplicates()) {
		t.Errorf("got %d duplicates, %d possible", duplicates, d.PossibleDuplicates())
	}
}

// The endpoint fails on one event, and takes all others. Breaks it catches: a lane that waits for one event forever;
// an event that is to blame for an outage of the endpoint. Seen to fail with every failure counted, taken between or
// not, and with none counted.
func TestAnEventThatTheEndpointStumblesOverIsSetAside(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	var asked atomic.Int64
	b := newBed(t, func(w http.ResponseWriter, d harness.Delivery) {
		if down.Load() || string(d.Body) == "000000003" {
			asked.Add(1)
			http.Error(w, "index out of range", http.StatusInternalServerError)
		} else {
			w.WriteHeader(http.StatusOK)
		}
	})
	topic := harness.Unique(t, "topic")
	f := &sinktest.Flow{Engine: sink.New(b.driver(t, nil), sink.Config{
		Backoff: func(int) time.Duration { return 2 * time.Millisecond },
	})}
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	records := sinktest.Events(topic, 0, 17)
	submit(t, f, records...)
	harness.Eventually(t, patience, "everything failed often", func(context.Context) string {
		if n := asked.Load(); n < 17*3*10 {
			return fmt.Sprintf("%d requests", n)
		}
		return ""
	})
	if n := f.Given(); n > 0 {
		t.Errorf("got %d results while the endpoint is down, want none", n)
	}
	down.Store(false)
	var poison *sink.Record
	for next := 17; poison == nil; next += 17 { // others flow
		some := collect(t, f, 1)
		for _, r := range some {
			if r.Result == sink.Rejected {
				poison = r
			}
		}
		if next < 10_000 {
			submit(t, f, sinktest.Events(topic, next, 17)...)
		}
	}
	if poison != records[3] || poison.Reason.Class != outbox.Transient || poison.Reason.Code != "HTTP_500" ||
		!strings.Contains(poison.Reason.Text, "index out of range") {
		t.Errorf("got event %s rejected, reason %+v; want event 3, for its own fault", poison.Value, poison.Reason)
	}
}

// Breaks it catches: events of a topic that no one configured that are posted somewhere, or that hold up others. Seen
// to fail with the topic's name below an empty URL.
func TestATopicWithoutAnEndpointWaits(t *testing.T) {
	b := newBed(t, nil)
	d := b.driver(t, func(c *webhook.Config) {
		c.URL, c.Endpoints = "", map[string]string{"orders": "http://" + b.proxy.Addr + "/in/orders?v=1"}
	})
	f := sinktest.NewFlow(t, d)
	submit(t, f, sinktest.Events("invoices", 0, 10)...)
	submit(t, f, sinktest.Events("orders", 0, 10)...)
	collect(t, f, 10)
	if got := len(b.Deliveries("/in/orders")); got != 10 {
		t.Errorf("got %d events at the topic's own URL, want 10", got)
	}
	if reason := awaitTrouble(t, f, sink.TopicTrouble); !strings.Contains(reason, "no endpoint is called invoices") {
		t.Errorf("reason: got %q", reason)
	}
}

// Breaks it catches: an endpoint that is away and looks well, or one that is back and does not; a message without the
// host. Seen to fail with the outage not noted, and with it not taken back.
func TestAnEndpointThatIsAwayIsUnreachable(t *testing.T) {
	b := newBed(t, nil)
	d := b.driver(t, func(c *webhook.Config) { c.URL = "http://" + b.Addr })
	f := sinktest.NewFlow(t, d)
	topic := harness.Unique(t, "topic")
	f.Send(sinktest.Events(topic, 0, 10))
	if _, err := d.Unreachable(); err != nil {
		t.Errorf("unreachable: got %v, want nil", err)
	}
	b.Kill()
	submit(t, f, sinktest.Events(topic, 10, 1)...)
	harness.Eventually(t, patience, "it is unreachable", func(context.Context) string {
		since, err := d.Unreachable()
		if err == nil || since.IsZero() || !strings.Contains(err.Error(), "http://127.0.0.1") {
			return fmt.Sprintf("%v since %v", err, since)
		}
		return ""
	})
	if reason := awaitTrouble(t, f, sink.ClusterTrouble); !strings.Contains(reason, "connection refused") {
		t.Errorf("reason: got %q", reason)
	}
	b.Start(t)
	collect(t, f, 1)
	if _, err := d.Unreachable(); err != nil {
		t.Errorf("unreachable when it is back: got %v, want nil", err)
	}
}

// Breaks it catches: an examination that delivers something, that finds an endpoint that is not there, or that does
// not say that nothing is signed. Seen to fail with POST in the place of HEAD, and with the secrets not counted.
func TestExamineDeliversNothing(t *testing.T) {
	b := newBed(t, nil)
	text, _, err := b.driver(t, nil).Examine(t.Context(), "orders")
	if err != nil || !strings.Contains(text, "answers (204 to HEAD)") || !strings.Contains(text, "NOT signed") {
		t.Errorf("got %q, %v; want it found, and not signed", text, err)
	}
	if found := b.Deliveries(""); len(found) > 0 {
		t.Errorf("got %d deliveries, want none", len(found))
	}
	missing := b.driver(t, func(c *webhook.Config) { c.SecretFile = t.TempDir() + "/{topic}" })
	_, _, err = missing.Examine(t.Context(), "orders")
	if err == nil || !strings.Contains(err.Error(), "webhook secret") {
		t.Errorf("without the secret's file: got %v", err)
	}
	nowhere := b.driver(t, func(c *webhook.Config) { c.URL = "" })
	if _, _, err := nowhere.Examine(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "no endpoint") {
		t.Errorf("without an endpoint: got %v", err)
	}
	b.proxy.Close()
	if _, _, err := b.driver(t, nil).Examine(t.Context(), ""); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with nobody there: got %v", err)
	}
}
