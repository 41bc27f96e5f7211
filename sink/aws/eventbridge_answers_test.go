package aws_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// busEntry is one of PutEvents.
type busEntry struct {
	Detail, TraceHeader string
	Time                float64 // seconds
}

// answering starts a server that has every bus and answers PutEvents with what put returns for each entry.
func answering(t *testing.T, put func([]busEntry) []map[string]string) (url string) {
	t.Helper()
	harness.AWSLogin(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if !strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".PutEvents") {
			_, _ = io.WriteString(w, `{"Name": "shop"}`)
			return
		}
		var input struct{ Entries []busEntry }
		if err := json.NewDecoder(q.Body).Decode(&input); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Entries": put(input.Entries)})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Breaks it catches: an entry's outcome taken for its neighbour's, so that an event is lost or there twice; an entry
// that may be there and is not counted when it is sent again.
func TestEventBridgeEntriesThatFailAloneAreSentAgainAlone(t *testing.T) {
	const n = 300
	var mu sync.Mutex
	requests, unknown, taken := 0, 0, map[string]int{}
	put := func(events []busEntry) (entries []map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		for i, e := range events {
			var detail struct{ Data struct{ N string } }
			if err := json.Unmarshal([]byte(e.Detail), &detail); err != nil {
				t.Errorf("read %s: %v", e.Detail, err)
			}
			code := ""
			switch {
			case requests%3 == 1 && i == 0:
				code = "ThrottlingException"
			case requests%5 == 2 && i == len(events)-1:
				code = "InternalFailure"
				unknown++
			default:
				taken[detail.Data.N]++
				entries = append(entries, map[string]string{"EventId": "e"})
				continue
			}
			entries = append(entries, map[string]string{"ErrorCode": code, "ErrorMessage": "said so"})
		}
		return entries
	}
	d := newEventBridge(t, answering(t, put))
	sinktest.NewFlow(t, d).Send(busEvents("shop", n))
	mu.Lock()
	defer mu.Unlock()
	for value, times := range taken {
		if times != 1 {
			t.Errorf("event %s: taken %d times", value, times)
		}
	}
	// One that is throttled when it is sent again counts twice.
	if got := int(d.PossibleDuplicates()); len(taken) != n || got < unknown {
		t.Errorf("got %d events, %d possible duplicates; want %d, at least %d", len(taken), got, n, unknown)
	}
}

// Breaks it catches: a trace that X-Ray does not join, a trace header for an invalid traceparent, and a time other than
// the row's.
func TestEventsHaveTheirTimeAndTrace(t *testing.T) {
	got := make(chan busEntry, 1)
	d := newEventBridge(t, answering(t, func(events []busEntry) []map[string]string {
		got <- events[0]
		return []map[string]string{{"EventId": "e"}}
	}))
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	const root = "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=00f067aa0ba902b7;Sampled="
	for parent, want := range map[string]string{
		"00-" + ids + "-01": root + "1", "00-" + ids + "-02": root + "0", "00-" + ids[1:] + "-01": "", "": "",
	} {
		r := busEvents("shop", 1)[0]
		r.Timestamp = 1_700_000_000_000
		r.Headers.Add("traceparent", []byte(parent))
		sinktest.NewFlow(t, d).Send([]*sink.Record{r})
		if e := <-got; e.TraceHeader != want || e.Time != 1_700_000_000 {
			t.Errorf("traceparent %q: got the trace %q and the time %f, want %q", parent, e.TraceHeader, e.Time, want)
		}
	}
}
