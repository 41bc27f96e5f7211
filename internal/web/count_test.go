package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Some are counted, then more die and one of those counted is closed; then all that were counted are asked for. Breaks
// it catches: a request that takes what died after the count, or by an age what was too young then; a count that is
// another one than the request's; a time that chooses everything. Seen to fail with the filter's until not looked at,
// with ages counted from the request, and with until taken for a choice.
func TestWhatWasCountedIsWhatIsDone(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	die := func(name string, n int, all string) {
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
			SELECT 'order', 'k' || n, '%s', '{}', '[]' FROM generate_series(1, %d) n`, name, n))
		harness.Eventually(t, 30*time.Second, all+" dead letters", s.deadLetters(t, all))
	}
	count := func(parameters string) (n int64, until string) {
		t.Helper()
		code, body, _ := d.try("GET", "/api/v1/count?"+parameters, "")
		var answer struct {
			Kind  string
			Count int64
			Until string
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK {
			t.Fatalf("count %s: got %d %s", parameters, code, body)
		}
		return answer.Count, answer.Until
	}
	die("early", 5, "5")
	die("other", 1, "6")
	n, until := count("kind=discard&type=early")
	if all, _ := count("kind=replay"); n != 5 || all != 6 {
		t.Errorf("counted: got %d and %d, want 5 of the type and 6", n, all)
	}
	young, untilYoung := count("kind=discard&older_than=1h")
	die("early", 2, "8")
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET discarded_at = now() WHERE event_type = 'early' AND aggregate_id = 'k5'")
	// What was too young when it was counted has come of age, and the count says 0: nothing is meant.
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET dead_at = dead_at - interval '59 minutes 59 seconds'")
	closed := func(filter string) *store.Request {
		t.Helper()
		code, body, _ := d.ask("POST", "/api/v1/dlq/discard", `{"filter": `+filter+`}`)
		var asked struct{ Request int64 }
		if err := json.Unmarshal([]byte(body), &asked); err != nil || code != http.StatusAccepted {
			t.Fatalf("discard %s: got %d %s", filter, code, body)
		}
		var r store.Request
		harness.Eventually(t, 30*time.Second, "the request is over", func(context.Context) string {
			_, body, _ := d.try("GET", fmt.Sprint("/api/v1/requests/", asked.Request), "")
			if r = (store.Request{}); json.Unmarshal([]byte(body), &r) != nil || r.FinishedAt == nil {
				return body
			}
			return ""
		})
		return &r
	}
	harness.Eventually(t, 30*time.Second, "they are an hour old", func(context.Context) string {
		n, _ := count("kind=discard&older_than=1h")
		if n == 0 {
			return "none is"
		}
		return ""
	})
	if r := closed(fmt.Sprintf(`{"older_than": "1h", "until": %q}`, untilYoung)); young != 0 || r.Done != 0 {
		t.Errorf("by age: counted %d, discarded %d, want none", young, r.Done)
	}
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET dead_at = dead_at + interval '59 minutes 59 seconds'")
	if r := closed(fmt.Sprintf(`{"type": "early", "until": %q}`, until)); r.Total == nil || *r.Total != 4 || r.Done != 4 {
		t.Errorf("discarded: got %+v, want the 4 of those counted that were left", r)
	}
	if left := s.pg.Query(t, `SELECT string_agg(event_type || ' ' || aggregate_id, ', ' ORDER BY event_type, aggregate_id)
		FROM outbox_events_dlq WHERE discarded_at IS NULL`); left != "early k1, early k2, other k1" {
		t.Errorf("left: got %s, want the two that came later, and the other type's", left)
	}
	for path, body := range map[string]string{
		"/api/v1/dlq/discard":                  `{"filter": {"until": "2026-01-01T00:00:00Z"}}`,
		"/api/v1/dlq/replay":                   `{"filter": {"all": true, "until": "yesterday"}}`,
		"GET /api/v1/count":                    "",
		"GET /api/v1/count?kind=pause":         "",
		"GET /api/v1/count?kind=retry&topik=a": "",
	} {
		method, path, is := strings.Cut(path, " ")
		if !is {
			method, path = "POST", method
		}
		if code, answer, _ := d.ask(method, path, body); code != http.StatusBadRequest {
			t.Errorf("%s %s: got %d %s, want 400", path, body, code, answer)
		}
	}
}

// Breaks it catches: a key that is looked for among the ids, or in one of the three places only. Seen to fail with rows
// of the table left out, and with dead letters left out.
func TestEventsAreFoundByTheirKey(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES
		('order', 'the/key', 'sent', '{}', '{}'), ('order', 'the/key', 'died', '{}', '[]'),
		('invoice', 'the/key', 'parked', '{}', '{}'), ('order', 'other', 'sent', '{}', '{}')`)
	for state, sql := range map[string]string{
		"published": "SELECT (count(*) = 2)::text FROM cdc_relay_journal",
		"dead":      "SELECT (count(*) = 1)::text FROM outbox_events_dlq",
		"parked":    "SELECT (count(*) = 1)::text FROM cdc_relay_parked",
	} {
		harness.Eventually(t, 30*time.Second, state, func(context.Context) string {
			if got := s.pg.Query(t, sql); got != "true" {
				return got
			}
			return ""
		})
	}
	find := func(key string) string {
		t.Helper()
		code, body, _ := s.ask("GET", "/api/v1/find?key="+key)
		var page store.Page[store.Found]
		if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK {
			t.Fatalf("find %s: got %d %s", key, code, body)
		}
		var states []string
		for _, f := range page.Items {
			states = append(states, f.State)
		}
		return fmt.Sprint(len(states), strings.Contains(body, `"other"`), strings.Contains(body, `"state": "published"`),
			strings.Contains(body, `"state": "dead"`), strings.Contains(body, `"state": "parked"`))
	}
	if got := find("the%2Fkey"); got != "3 false true true true" {
		t.Errorf("events of the key: got %s, want three, of all kinds, and no other one's", got)
	}
	s.pg.Exec(t, "DELETE FROM outbox_events") // what is dead or parked is found without its row
	if got := find("the%2Fkey"); got != "2 false false true true" {
		t.Errorf("without rows: got %s, want what is dead and what is parked", got)
	}
	if got := find("no"); got != "0 false false false false" {
		t.Errorf("of a key that is not there: got %s", got)
	}
	for _, query := range []string{"key=%00", "key=a&id=b", "key=a&aggregate=b/c", "key=a&key=b"} {
		if code, body, _ := s.ask("GET", "/api/v1/find?"+query); code != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", query, code, body)
		}
	}
}
