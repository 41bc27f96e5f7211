package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The role of a relay loses the right to mark rows while it runs, and gets it back. Breaks it catches: events that stop
// with the marks; a relay that calls itself well while rows are not marked, or does not say that they are kept and what
// to do; marks that do not come back. Seen to fail with the refusal taken for any other error, and with the trouble of
// marks not noted.
func TestMarksThatAreRefusedKeepRowsAndSaySo(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	stream, sql := harness.Unique(t, "stream"), harness.Unique(t, "sql")
	defer func() {
		for _, role := range []string{stream, sql} {
			s.pg.Exec(t, fmt.Sprintf(`DROP OWNED BY "%[1]s"; DROP ROLE "%[1]s"`, role))
		}
	}()
	cdcRelay(t, s.environ, "init", "--roles", "--role-stream", stream, "--role-sql", sql).want(t, exitDone, nil, nil)
	as := func(role string) string { return strings.Replace(s.pg.URL, "postgres@", role+"@", 1) }
	r := startRelay(t, append(s.environ, "CDC_RELAY_POSTGRES_URL="+as(sql),
		"CDC_RELAY_POSTGRES_REPLICATION_URL="+as(stream)))
	s.ready(t)
	said := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	eventually := func(what, path string, texts ...string) {
		t.Helper()
		harness.Eventually(t, 25*time.Second, what, func(context.Context) string {
			body := said(path)
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return "no " + text + " in " + body
				}
			}
			return ""
		})
	}
	s.pg.Exec(t, fmt.Sprintf(`REVOKE UPDATE (published_at) ON outbox_events FROM "%s"`, sql))
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'a', 'placed', '{}')`)
	eventually("the event is journaled and the relay is degraded", "/api/v1/status", `"state": "degraded"`,
		"as with outbox.after_publish: keep", "permission denied", `"mirror_lag_events": 1`)
	eventually("the metric says so", "/metrics", `outbox_degraded{reason="mirror",service="cdc-relay"} 1`)
	if got := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); got != "1" {
		t.Errorf("journaled: got %s, want the event that cannot be marked", got)
	}
	s.pg.Exec(t, fmt.Sprintf(`GRANT UPDATE (published_at) ON outbox_events TO "%s"`, sql))
	eventually("the marks are back", "/api/v1/status", `"state": "active"`, `"mirror_lag_events": 0`)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code: got %d, want 0; log:\n%s", code, r.log)
	}
}
