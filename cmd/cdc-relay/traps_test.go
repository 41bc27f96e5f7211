package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break it catches: a command that a superuser runs, and that runs what a role without any right but CREATE on a schema
// has put there, so that this role is a superuser then. Seen to fail with the search_path left as it is in any one of:
// the transactions of the store, the questions of check, those of config init, the stream's.
func TestNoCommandRunsWhatAnotherRoleMade(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	role := harness.Unique(t, "admin")
	s.pg.Exec(t, `CREATE ROLE `+role+` LOGIN SUPERUSER; ALTER ROLE `+role+` SET search_path = public, pg_catalog`)
	defer func() { s.pg.Exec(t, `REASSIGN OWNED BY `+role+` TO CURRENT_USER; DROP ROLE `+role) }()
	s.environ = append(s.environ, "CDC_RELAY_POSTGRES_URL="+strings.Replace(s.pg.URL, "postgres@", role+"@", 1)+
		"&target_session_attrs=primary")
	s.pg.SetTraps(t)
	s.pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type varchar(40),
 aggregate_id varchar(40), event_type name, payload jsonb, headers jsonb, created_at timestamptz DEFAULT
 clock_timestamp(),
 published_at timestamptz, state mood DEFAULT 'PENDING', word varchar(20) DEFAULT '')`)
	s.environ = append(s.environ, "CDC_RELAY_OUTBOX_COLUMNS_HEADERS=headers",
		"CDC_RELAY_OUTBOX_PUBLISHED_WHEN=state = 'PUBLISHED' OR word = 'sent'",
		"CDC_RELAY_OUTBOX_MARK_SET=state = 'PUBLISHED', word = word || 'x'")
	event := `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'a', 'x',
 '{}')`
	does := func(code int, args ...string) {
		t.Helper()
		o := cdcRelay(t, s.environ, args...)
		if caught := s.pg.Caught(t, role); caught != "" || o.code != code {
			t.Errorf("cdc-relay %s: got exit code %d, want %d; ran %q; output:\n%s%s", strings.Join(args, " "), o.code, code,
				caught, o.out, o.errors)
		}
	}
	names := []string{"--role-stream", harness.Unique(t, "stream"), "--role-sql", harness.Unique(t, "sql")}
	does(exitDone, append([]string{"init", "--roles", "--emit", "--dry-run"}, names...)...)
	does(exitDone, "config", "init", "--write", "-")
	does(exitFailed, "check")
	does(exitDone, "init", "--emit")
	does(exitDone, append([]string{"init", "--roles", "--dry-run"}, names...)...)
	does(exitDone, "init", "--inbox", "boxes", "--dry-run")
	does(exitDone, "init", "--inbox", "boxes")
	does(exitDone, "check")
	s.pg.Exec(t, event)
	r := startRelay(t, s.environ)
	s.ready(t)
	s.pg.Exec(t, event)
	settled(t, s.pg, "2")
	for n := range 4 { // without a function or operator, which would be a trap for the test
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events_dlq (source, original_id, aggregate_type, aggregate_id,
 event_type,
 payload, topic, key, position, epoch, from_stream, position_order, position_index, attempts, error_class, error_code,
 last_error) VALUES ((SELECT source FROM cdc_relay_source), '%s', 'order', 'a', 'made', '{}', 'outbox.event.order', 'a',
 '0/1/%[2]d', 0, true, 1, %[2]d, 2, 'permanent', 'PLANTED', 'x')`, plantedID(n), n))
	}
	id := s.pg.Query(t, "SELECT min(id::text) FROM outbox_events")
	payload := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(payload, []byte(`{"n": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	does(exitDone, "status", "--http-listen", r.address)
	does(exitDone, "find", id)
	does(exitDone, "find", "--aggregate", "order/a")
	does(exitDone, "dlq", "list")
	does(exitDone, "dlq", "show", plantedID(1))
	does(exitDone, "dlq", "edit", plantedID(1), "--note", "n", "--payload-file", payload)
	does(exitDone, "dlq", "replay", plantedID(2))
	does(exitDone, "dlq", "discard", plantedID(3), "--yes")
	does(exitDone, "parked", "list")
	does(exitDone, "retry", "now", "--all")
	does(exitDone, "alarms", "list")
	does(exitDone, "verify")
	does(exitDone, "cleanup", "--dry-run")
	does(exitDone, "slot", "status")
	does(exitDone, "reconcile", "--dry-run")
	does(exitDone, "pause")
	does(exitDone, "resume")
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("run: got exit code %d; log:\n%s", code, r.log)
	}
	does(exitFailed, "reconcile", "--dry-run") // without a relay it cannot tell what is missed
	does(exitDone, "cleanup")
	does(exitDone, "adopt", "--dry-run")
	does(exitDone, "slot", "advance", "--to", "end", "--yes")
}
