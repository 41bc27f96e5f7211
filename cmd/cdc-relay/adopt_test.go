package main

import (
	"context"
	"encoding/json"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: an adoption that publishes again what a person discarded, or what the journal has; one that does
// something in a dry run; a check that says nothing of it. Seen to fail with a dry run that moves, and with a check
// that does not look.
func TestAdoptCarriesJournalAndDecisionsToAnotherServerAndSlot(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	s.environ = append(s.environ, "CDC_RELAY_OUTBOX_COLUMNS_HEADERS=headers")
	cdcRelay(t, s.environ, "adopt").want(t, exitFailed, nil, []string{"outbox_events"}) // there is nothing yet
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, headers)
SELECT 'order', '1', 'x', CASE i WHEN 7 THEN '[]'::jsonb END FROM generate_series(1, 20) i`)
	waitJournaled(t, s, "19")
	harness.Eventually(t, 30*time.Second, "one is dead", func(context.Context) string {
		return s.pg.Query(t, "SELECT CASE count(*) WHEN 1 THEN NULL ELSE 'not yet' END FROM outbox_events_dlq")
	})
	cdcRelay(t, s.environ, "dlq", "discard", "--all", "--yes", "--note", "not wanted").want(t, exitDone, nil, nil)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Fatalf("the relay: got exit code %d, want 0", code)
	}
	former := s.pg.Query(t, "SELECT slot FROM cdc_relay_state")
	s.pg.Exec(t, `SELECT pg_drop_replication_slot('`+former+`'); UPDATE cdc_relay_state SET system_id = '7'`)
	moved := append(slices.Clone(s.environ), "CDC_RELAY_POSTGRES_SLOT="+harness.Unique(t, "moved"))

	cdcRelay(t, moved, "check").want(t, exitFailed, []string{"FAIL", "memory: is of slot " + former, "cdc-relay adopt"},
		nil)
	renamed := append(slices.Clone(s.environ), "CDC_RELAY_POSTGRES_SLOT="+former)
	cdcRelay(t, renamed, "check").want(t, exitFailed, []string{"memory: is of server 7", "cdc-relay adopt"}, nil)
	var got show.Adopted
	adopt := func(args ...string) {
		t.Helper()
		o := cdcRelay(t, moved, append([]string{"adopt", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(o.out), &got); err != nil || o.code != exitDone {
			t.Fatalf("exit code %d, output %s, errors %s", o.code, o.out, o.errors)
		}
	}
	for range 2 {
		adopt("--dry-run")
		if got.AtHome || got.FromSlot != former || got.FromSystem != "7" || got.Discarded != 1 {
			t.Fatalf("dry run: got %+v, want slot %s of server 7 with one discarded dead letter", got, former)
		}
	}
	adopt()
	cdcRelay(t, moved, "adopt").want(t, exitDone, []string{"nothing to adopt"}, nil)
	cdcRelay(t, moved, "check").want(t, exitDone, []string{"memory: is of this slot, server and table"}, nil)
	startRelay(t, moved)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) SELECT 'order', '1', 'x'
 FROM generate_series(1, 5)`)
	waitJournaled(t, s, "24")
	cdcRelay(t, moved, "verify").want(t, exitDone, nil, nil)
	if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "24" {
		t.Errorf("journal: got %s rows, want 24", n)
	}
	records := 0
	harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(*kgo.Record) { records++ })
	if records != 24 {
		t.Errorf("topic: got %d records, want 24, each once", records)
	}
}

func waitJournaled(t *testing.T, s services, want string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, want+" events are journaled", func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); got != want {
			return "journaled: " + got
		}
		return ""
	})
}
