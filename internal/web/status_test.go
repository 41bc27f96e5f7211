package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// figures are those of a status that are not known at all times, with the metrics that tell the same.
var figures = map[string]string{
	"dead_letters": "outbox_dlq_events", "parked_events": "outbox_parked_events", "parked_keys": "outbox_parked_keys",
	"backlog":           "outbox_backlog_gauge",
	"mirror_lag_events": "outbox_mirror_lag_events", "mirror_lag_seconds": "outbox_mirror_lag_seconds",
	"retained_wal_bytes":    "cdc_slot_retained_wal_bytes",
	"replication_lag_bytes": "cdc_replication_lag_bytes", "replication_lag_seconds": "cdc_replication_lag_seconds",
	"oldest_pending_age_seconds": "outbox_oldest_pending_age_seconds",
}

// status is /api/v1/status as scripts see it.
func (s *site) status() map[string]any {
	s.t.Helper()
	_, body, _ := s.ask(http.MethodGet, "/api/v1/status")
	var st map[string]any
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		s.t.Fatalf("/api/v1/status: %v: %s", err, body)
	}
	return st
}

// metric is the value of a metric without further labels; false: it is not there.
func (s *site) metric(name string) (value float64, there bool) {
	s.t.Helper()
	_, body, _ := s.ask(http.MethodGet, "/metrics")
	m := regexp.MustCompile(`(?m)^` + name + `\{service="shop"\} (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		return 0, false
	}
	value, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return value, true
}

// Breaks it catches: a status with 0 for what is not known, or for what /metrics knows, as during a halt (seen to fail
// with the dead letters told only while there is a session).
func TestStatusAndMetricsTellTheSame(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	st := s.status()
	for figure, metric := range figures {
		if value, there := st[figure]; !there || value != nil {
			t.Errorf("before the start: %s is %v, there %v; want null", figure, value, there)
		}
		if value, there := s.metric(metric); there {
			t.Errorf("before the start: %s is %v, want no such series", metric, value)
		}
	}
	for _, name := range []string{"epoch", "received_lsn", "confirmed_lsn", "last_published_at"} {
		if value, there := st[name]; !there || value != nil {
			t.Errorf("before the start: %s is %v, there %v; want null", name, value, there)
		}
	}
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, fmt.Sprintf(insertOrder, "{}")+";"+fmt.Sprintf(insertOrder, "[]")+";"+absent)
	tells := func(what string, want map[string]any) {
		t.Helper()
		harness.Eventually(t, 40*time.Second, what, func(context.Context) string {
			st := s.status()
			for name, value := range want {
				if st[name] != value {
					return fmt.Sprintf("%s is %v, want %v: %v", name, st[name], value, st)
				}
				if got, there := s.metric(figures[name]); !there || got != value {
					return fmt.Sprintf("%s is %v, there %v, want %v", figures[name], got, there, value)
				}
			}
			return ""
		})
	}
	// The events of a topic that is not there are parked.
	counts := map[string]any{"dead_letters": 1.0, "parked_events": 12.0, "parked_keys": 3.0}
	tells("what is parked and dead is counted", counts)
	if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(s.status()["last_published_at"])); err != nil ||
		time.Since(at) > time.Minute || time.Since(at) < 0 {
		t.Errorf("last_published_at: got %v, %v, want just now", at, err)
	}
	s.pg.Exec(t, "ALTER TABLE outbox_events RENAME TO elsewhere; SELECT pg_terminate_backend(active_pid) FROM "+
		"pg_replication_slots WHERE slot_name = '"+s.pg.Database+"'")
	s.wantReady(http.StatusServiceUnavailable, "halted")
	tells("during a halt they are counted still", counts)
	halted, _ := s.status()["halt"].(map[string]any)
	if page, _ := halted["runbook"].(string); !strings.HasSuffix(page, fmt.Sprint(halted["code"])) || len(halted) == 0 {
		t.Errorf("the halt: got %v, want its runbook", halted)
	} else if code, body, _ := s.ask(http.MethodGet, page); code != http.StatusOK ||
		!strings.Contains(body, "What to do") {
		t.Errorf("%s: got %d %.100s, want the runbook of the halt", page, code, body)
	}
	for figure, metric := range figures {
		value, known := s.status()[figure].(float64)
		if _, there := s.metric(metric); known != there {
			t.Errorf("during a halt: %s is %v, known %v; %s there %v; want both or none", figure, value, known, metric, there)
		}
	}
}

// Breaks it catches: a relay that calls itself well while everything of a topic is parked, or while no row can be
// marked; one that is taken out of service for it; a state that stays. Seen to fail without the topics.
func TestDegradedIsToldAndStaysReady(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	wants := func(state, reason string, code int) {
		t.Helper()
		harness.Eventually(t, 40*time.Second, state+" "+reason, func(context.Context) string {
			st := s.status()
			_, metrics, _ := s.ask(http.MethodGet, "/metrics")
			got, body, _ := s.ask(http.MethodGet, "/readyz?degraded")
			told := reason == "" || strings.Contains(metrics, `outbox_degraded{reason="`+reason+`",service="shop"} 1`)
			if st["state"] != state || got != code || !told || !strings.Contains(body, `"state": "`+state+`"`) {
				return fmt.Sprintf("state %v, /readyz?degraded %d %s, metric there %v", st["state"], got, body, told)
			}
			return ""
		})
		if code, body, _ := s.ask(http.MethodGet, "/readyz"); code != http.StatusOK {
			t.Errorf("%s: /readyz: got %d %s, want 200: nothing that restarts could help", state, code, body)
		}
	}
	wants("active", "", 200)
	s.pg.Exec(t, absent)
	wants("degraded", "topic", 503)
	if degraded := fmt.Sprint(s.status()["degraded"]); !strings.Contains(degraded, "outbox.event.invoice") {
		t.Errorf("degraded: got %s, want the topic named", degraded)
	}
	s.pg.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no marks today'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse(); `+
		fmt.Sprintf(insertOrder, "{}"))
	wants("degraded", "mirror", 503)
	if degraded := fmt.Sprint(s.status()["degraded"]); !strings.Contains(degraded, "no marks today") {
		t.Errorf("degraded: got %s, want the error of the mark", degraded)
	}
	s.pg.Exec(t, "DROP TRIGGER refuse ON outbox_events")
	harness.Eventually(t, 40*time.Second, "marks are well again", func(context.Context) string {
		if degraded := fmt.Sprint(s.status()["degraded"]); strings.Contains(degraded, "mirror") {
			return degraded
		}
		return ""
	})
}
