package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// secret of the tests' receivers.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// forWebhooks are the settings of a relay to a receiver.
func forWebhooks(t testing.TB, addr string) []any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []any{"sink", "webhook", "webhook.url", "http://" + addr + "/hooks", "webhook.secret_file", file}
}

// bodies are deliveries as the judge wants them.
func bodies(t *testing.T, all []harness.Delivery) (found []message) {
	for _, d := range all {
		if !strings.HasPrefix(d.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("event %s is not signed", d.Header.Get("Webhook-Id"))
		}
		found = append(found, message{id: d.Header.Get("Webhook-Id"), key: d.Header.Get("X-Outbox-Key"), payload: d.Body})
	}
	return found
}

// Duplicates were unanswered, or not journaled, when something broke. Breaks it catches: an event lost or
// out of order between Postgres and a receiver, whatever is killed, and more duplicates than were in flight. Seen to
// fail with keys spread over the lanes without a look at them.
func TestWebhooksComeInOrderAndNoneIsLost(t *testing.T) {
	const unrecorded, lanes = 150, 16
	kills := harness.Count(t, "brokers' kills")
	receiver := harness.NewReceiver(t, nil)
	proxy := cutproxy.StartPlain(t, receiver.Addr)
	judge(t, scenario{
		settings: append(forWebhooks(t, proxy.Addr), "limits.max_unrecorded", unrecorded, "webhook.lanes", lanes),
		proxy:    proxy,
		restart:  func() { receiver.Kill(); receiver.Start(t) },
		read: func(topic string) []message {
			return bodies(t, receiver.Deliveries("/hooks/"+topic))
		},
		// Of each kill of the relay, of each restart of the receiver, and a request for each connection that was cut.
		duplicates: func() int { return kills*unrecorded + (kills+1)/3*lanes + proxy.Cuts() },
	})
}

// A relay is frozen under load, another takes over, and the first wakes up. Breaks it catches: an event lost or out of
// order, and a relay that goes on sending what it had when it was frozen. Seen to fail with the sink's permit always
// given.
func TestWebhooksOfAFrozenRelay(t *testing.T) {
	harness.Full(t)
	const unrecorded, lanes = 150, 16
	receiver := harness.NewReceiver(t, func(w http.ResponseWriter, d harness.Delivery) {
		<-time.After(5 * time.Millisecond) // it works, so that there is a queue
		w.WriteHeader(http.StatusOK)
	})
	judgeFrozen(t, scenario{
		settings: append(forWebhooks(t, receiver.Addr), "limits.max_unrecorded", unrecorded, "webhook.lanes", lanes),
		read: func(topic string) []message {
			return bodies(t, receiver.Deliveries("/hooks/"+topic))
		},
		duplicates: func() int { return unrecorded + lanes },
	})
}

// One endpoint is missing at first, one event is refused, and one endpoint is told to wait. Breaks it catches: an
// endpoint in trouble that holds up another; parked events that come out of order, or not; an event that is refused
// and blocks its key; one that cannot be sent again once the receiver takes it.
// Seen to fail with what is written before a refused event not told.
func TestWebhooksParkRefuseAndReplay(t *testing.T) {
	harness.Full(t)
	var made, mended atomic.Bool
	var limited atomic.Int64 // requests that were told to come later
	receiver := harness.NewReceiver(t, func(w http.ResponseWriter, d harness.Delivery) {
		switch {
		case strings.HasSuffix(d.Path, ".invoice") && !made.Load():
			http.Error(w, "no such hook", http.StatusNotFound)
		case strings.HasSuffix(d.Path, ".order") && string(d.Body) == `{"n": 70}` && !mended.Load():
			http.Error(w, "n must not be 70", http.StatusUnprocessableEntity)
		case strings.HasSuffix(d.Path, ".payment") && limited.Add(1) == 20:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
	pg := harness.Postgres(t)
	settings := harness.NewSettings(t, pg, nil).With(forWebhooks(t, receiver.Addr)...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	relay := harness.StartRelay(t, settings)
	const n = 200 // of each type, 40 of a key
	conn := pg.Connect(t)
	commit := func(from, to int) {
		for number := from; number <= to; number++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_events
				(id, aggregate_type, aggregate_id, event_type, payload)
				SELECT gen_random_uuid(), kind, 'key-' || $1 % 5, 'changed', jsonb_build_object('n', $1::int)
				FROM unnest(ARRAY['order', 'invoice', 'payment']) kind`, number); err != nil {
				t.Fatal(err)
			}
		}
	}
	numbers := func(kind string) (first map[string][]int, count int) {
		first = map[string][]int{}
		for _, d := range receiver.Deliveries("/hooks/" + settings.Topic(kind)) {
			var body struct {
				N int `json:"n"`
			}
			if err := json.Unmarshal(d.Body, &body); err != nil {
				t.Fatal(err)
			}
			key := d.Header.Get("X-Outbox-Key")
			first[key] = append(first[key], body.N)
			count++
		}
		return first, count
	}
	await := func(kind string, want int) {
		t.Helper()
		what := fmt.Sprintf("%d events of %s are there", want, kind)
		harness.Eventually(t, time.Minute, what, func(context.Context) string {
			if _, count := numbers(kind); count < want {
				return strconv.Itoa(count)
			}
			return ""
		})
	}
	commit(1, n/4)
	awaitTroubled(t, relay, 1)
	commit(n/4+1, n/2)
	await("order", n/2-1) // but the one that is refused
	await("payment", n/2)
	awaitParked(t, relay, n/4)
	if code, out, stderr := relay.Run(t, "dlq", "list"); code != 0 || !strings.Contains(out, "HTTP_422") {
		t.Errorf("dlq list: exit %d, %s%s; want the refused event", code, out, stderr)
	}
	made.Store(true)
	mended.Store(true)
	commit(n/2+1, n)
	await("invoice", n)
	await("payment", n)
	if code, _, stderr := relay.Run(t, "dlq", "replay", "--all", "--timeout", "30s"); code != 0 {
		t.Fatalf("replay: exit %d, %s", code, stderr)
	}
	await("order", n)
	awaitPublished(t, pg, 3*n)
	relay.Stop(t)
	for _, kind := range []string{"order", "invoice", "payment"} {
		byKey, count := numbers(kind)
		if count != n {
			t.Errorf("%s: got %d events, want %d, none twice", kind, count, n)
		}
		for key, got := range byKey {
			last := 0
			for _, number := range got {
				if number <= last && (kind != "order" || number != 70) { // its place is behind: it was replayed
					t.Errorf("%s, %s: got event %d behind %d", kind, key, number, last)
				}
				last = max(last, number)
			}
		}
	}
	all := receiver.Deliveries("/hooks/" + settings.Topic("order"))
	if d := all[len(all)-1]; d.Header.Get("X-Outbox-Replay") != "1" || string(d.Body) != `{"n": 70}` {
		t.Errorf("the last order: got %s, headers %v; want the replayed one", d.Body, d.Header)
	}
}
