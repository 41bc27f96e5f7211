package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Times without a zone are the database's on every way of an event. Breaks it catches: a header or a latency that is
// hours off, rows marked in another zone than the application writes. Written, but not run, to fail before the zone was
// known: the header is 5 h early, and the mark 5 h behind.
func TestEventsOfATableWithoutTimeZones(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	s.pg.Exec(t, `ALTER DATABASE `+s.pg.Database+` SET timezone = 'America/Lima'; SET timezone = 'America/Lima';
CREATE TABLE outbox_events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text, aggregate_id text,
 event_type text, payload jsonb, created_at timestamp NOT NULL DEFAULT clock_timestamp(), published_at timestamp);
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('order', 'older', 'made')`)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, s.environ, "check").want(t, exitDone, []string{"in America/Lima (the database's time zone)"}, nil)
	r := startRelay(t, s.environ)
	r.awaitStatus(t, `"role": "active"`)
	s.pg.Exec(t, `SET timezone = 'America/Lima';
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('order', 'newer', 'made')`)
	settled(t, s.pg, "2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := 0
	err := s.broker.Consume(ctx, []string{"outbox.event.order"}, func(m embedded.Message) {
		at, err := time.Parse(time.RFC3339Nano, string(m.Header("created_at")))
		if age := time.Since(at); err != nil || age < -time.Minute || age > 5*time.Minute {
			t.Errorf("created_at of %s: got %s, %v; want it a moment ago", m.Key, m.Header("created_at"), err)
		}
		if seen++; seen == 2 {
			cancel()
		}
	})
	if seen != 2 {
		t.Fatalf("got %d messages, want 2: %v", seen, err)
	}
	harness.Eventually(t, 20*time.Second, "rows marked", func(context.Context) string {
		return s.pg.Query(t, "SELECT string_agg(id::text, ', ') FROM outbox_events WHERE published_at IS NULL")
	})
	if got := s.pg.Query(t, `SELECT count(*) FROM outbox_events
WHERE published_at BETWEEN created_at - interval '1 minute' AND created_at + interval '5 minutes'`); got != "2" {
		t.Errorf("rows marked in the zone of created_at: got %s of 2: %s", got,
			s.pg.Query(t, "SELECT string_agg(created_at || ' ' || published_at, ', ') FROM outbox_events"))
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, r.log)
	}
}
