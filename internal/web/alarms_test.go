package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/web"
)

// Breaks it catches: an alarm that is acknowledged without the token, or that a number which does not exist takes with
// it; a list that leaves the command that repairs out. Seen to fail with the token not looked at, and with an unknown
// number answered with 200.
func TestAlarmsAreListedAndAcknowledgedWithTheToken(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, `INSERT INTO cdc_relay_alarms (source, kind, topic, partition, detail, repair, first_seen, last_seen,
 count) SELECT source, 'lost_data', 'orders', 1, 'records are gone', 'cdc-relay verify --repair', now(), now(), 1
FROM cdc_relay_source`)
	const open = "SELECT count(*) FROM cdc_relay_alarms WHERE acknowledged_at IS NULL"
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	code, body, _ := d.ask(http.MethodGet, "/api/v1/alarms", "")
	if code != http.StatusOK || !strings.Contains(body, `"repair": "cdc-relay verify --repair"`) {
		t.Errorf("list: got %d %s", code, body)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/api/v1/alarms/ack",
		strings.NewReader(`{"all": true}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized || s.pg.Query(t, open) != "1" {
		t.Errorf("acknowledge without the token: got %d and %s open, want 401 and 1",
			response.StatusCode, s.pg.Query(t, open))
	}
	for _, row := range []struct {
		method, path, body string
		code               int
		say                string
	}{
		{"POST", "/api/v1/alarms/ack", `{}`, 400, "want one of"},
		{"POST", "/api/v1/alarms/ack", `{"all": true, "ids": [1]}`, 400, "want one of"},
		{"POST", "/api/v1/alarms/ack", `{"ids": ["1"]}`, 400, "read the body"},
		{"POST", "/api/v1/alarms/ack", `{"ids": [1, 77]}`, 404, "no open alarm 77"},
		{"GET", "/api/v1/alarms?state=some", "", 400, "allowed: open, all"},
		{"GET", "/api/v1/alarms?state=all", "", 200, "records are gone"},
	} {
		code, body, _ := d.ask(row.method, row.path, row.body)
		if code != row.code || !strings.Contains(body, row.say) {
			t.Errorf("%s %s %s: got %d %s, want %d with %q", row.method, row.path, row.body, code, body, row.code, row.say)
		}
	}
	if n := s.pg.Query(t, open); n != "1" {
		t.Errorf("open after refusals: got %s, want 1", n)
	}
	code, body, _ = d.ask(http.MethodPost, "/api/v1/alarms/ack", `{"all": true, "who": "ann"}`)
	if code != http.StatusOK || s.pg.Query(t, open) != "0" || !strings.Contains(body, "acknowledged") {
		t.Errorf("acknowledge all: got %d %s and %s open", code, body, s.pg.Query(t, open))
	}
	if by := s.pg.Query(t, "SELECT acknowledged_by FROM cdc_relay_alarms"); !strings.HasPrefix(by, "ann via api@") {
		t.Errorf("acknowledged by: got %s, want ann via api@…", by)
	}
}
