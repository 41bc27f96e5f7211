package eventbridge_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Breaks it catches: an entry's outcome taken for its neighbour's, so that an event is lost or there twice; an entry
// that may be there and is not counted when it is sent again.
func TestEntriesThatFailAloneAreSentAgainAlone(t *testing.T) {
	harness.AWSLogin(t)
	const n = 300
	var mu sync.Mutex
	requests, unknown, taken := 0, 0, map[string]int{}
	put := func(events []struct{ Detail string }) (entries []map[string]string) {
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if !strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".PutEvents") {
			_, _ = io.WriteString(w, `{"Name": "shop"}`)
			return
		}
		var input struct{ Entries []struct{ Detail string } }
		if err := json.NewDecoder(q.Body).Decode(&input); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Entries": put(input.Entries)})
	}))
	t.Cleanup(server.Close)
	d := newDriver(t, server.URL)
	sinktest.NewFlow(t, d).Send(events("shop", n))
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
