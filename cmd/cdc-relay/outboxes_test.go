package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// tenant creates a tenant's outbox.
func tenant(t *testing.T, pg *harness.PG, name string) {
	t.Helper()
	pg.Exec(t, fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.outbox_events (id uuid PRIMARY KEY,
		aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb,
		headers jsonb, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)`, name))
}

// write commits the first n events of tenants, with the same ids and keys for each.
func write(t *testing.T, pg *harness.PG, kind string, from, to int, names ...string) {
	t.Helper()
	for _, name := range names {
		pg.Exec(t, fmt.Sprintf(`INSERT INTO %[1]s.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
			SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, '%[2]s', 'k1', '%[1]s', '{}'
			FROM generate_series(%[3]d, %[4]d) i`, name, kind, from, to))
	}
}

// Breaks it catches: a command that takes the events of one outbox for those of another with the same ids, or that
// works on all of them where one was meant; a table that no one publishes and no one names.
func TestCommandsForSeveralOutboxes(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	s.environ = append(s.environ, "CDC_RELAY_OUTBOX_TABLES=tenant_*.outbox_events", "CDC_RELAY_RETRY_MAX_ATTEMPTS=1")
	run := func(args ...string) outcome { return cdcRelay(t, s.environ, args...) }
	run("init").want(t, exitFailed, nil, []string{"no table fits outbox.tables"})
	run("check").want(t, exitFailed, []string{"no table fits outbox.tables"}, nil)
	tenant(t, s.pg, "tenant_1")
	tenant(t, s.pg, "tenant_2")
	run("init", "--dry-run").want(t, exitDone, []string{"cdc_relay_journal", `"outbox_events_dlq"`,
		`FOR TABLE "tenant_1"."outbox_events", "tenant_2"."outbox_events"`, "!outbox_events_status", "!tenant_*"}, nil)
	run("init").want(t, exitDone, []string{"created"}, nil)
	run("check").want(t, exitDone, []string{"2 tables fit", "publishes inserts of all 2 outboxes", "!FAIL"}, nil)
	r := startRelay(t, s.environ)
	write(t, s.pg, "order", 1, 2, "tenant_1", "tenant_2")
	settled(t, s.pg, "4")
	tenant(t, s.pg, "tenant_3")
	write(t, s.pg, "order", 1, 1, "tenant_3")
	run("check").want(t, exitDone, []string{`1 of 3 outboxes are not in it`, "is of this slot and server",
		`ADD TABLE "tenant_3"."outbox_events"`}, nil)
	r.awaitStatus(t, `"reason": "outbox"`)
	s.pg.Exec(t, `ALTER PUBLICATION cdc_relay ADD TABLE tenant_3.outbox_events`)
	write(t, s.pg, "order", 2, 2, "tenant_3")
	settled(t, s.pg, "6")
	write(t, s.pg, "bad topic", 3, 4, "tenant_1", "tenant_2")
	harness.Eventually(t, time.Minute, "dead letters", func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"); got != "4" {
			return "got " + got + ", want 4"
		}
		return ""
	})

	all := run("dlq", "list")
	all.want(t, exitDone, []string{"OUTBOX", "tenant_1.outbox_events", "tenant_2.outbox_events", plantedID(3)}, nil)
	if n := strings.Count(all.out, plantedID(3)); n != 2 {
		t.Errorf("dead letters with one id: got %d lines, want one of each outbox", n)
	}
	run("dlq", "list", "--outbox", "tenant_2").want(t, exitDone,
		[]string{"tenant_2.outbox_events", "!tenant_1.outbox_events"}, nil)
	run("dlq", "list", "--outbox", "tenant_9").want(t, exitFailed, nil, []string{"tenant_9.outbox_events"})
	run("dlq", "reasons").want(t, exitDone, []string{"4 "}, nil)
	const which = "several outboxes"
	run("dlq", "show", plantedID(3)).want(t, exitUsage, nil, []string{which, "--outbox"})
	run("dlq", "show", plantedID(3), "--outbox", "tenant_1").want(t, exitDone, []string{"tenant_1.outbox_events"}, nil)
	run("dlq", "discard", "--all", "--yes").want(t, exitUsage, nil, []string{which, "--outbox"})
	run("find", plantedID(1)).want(t, exitUsage, nil, []string{which, "--outbox"})
	run("verify").want(t, exitUsage, nil, []string{which, "--outbox"})
	run("find", plantedID(3), "--outbox", "tenant_1", "--http-listen", r.address).want(t, exitDone,
		[]string{"dead", "cdc-relay dlq replay " + plantedID(3) + " --outbox tenant_1.outbox_events"}, nil)
	run("dlq", "edit", plantedID(3), "--tombstone", "--no-replay", "--outbox", "tenant_1").want(t, exitDone,
		[]string{"cdc-relay dlq replay " + plantedID(3) + " --outbox tenant_1"}, nil)
	run("dlq", "edit", "--all", "--merge-payload", `{"a": 1}`, "--yes", "--outbox", "tenant_2").want(t, exitFailed,
		[]string{"2 of 2 dead letters edited"}, nil)
	run("dlq", "discard", "--all", "--yes", "--outbox", "tenant_1.outbox_events").want(t, exitDone,
		[]string{"2 of 2 dead letters discarded"}, nil)
	if got := s.pg.Query(t, `SELECT string_agg(DISTINCT o.table_name, ' ') FROM outbox_events_dlq d
		JOIN cdc_relay_source o USING (source) WHERE d.discarded_at IS NULL AND d.edited_at IS NOT NULL`); got !=
		"tenant_2.outbox_events" {
		t.Errorf("outboxes with open dead letters: got %q, want the second", got)
	}

	run("reconcile", "--dry-run").want(t, exitUsage, nil, []string{which, "--outbox"})
	run("reconcile", "--dry-run", "--outbox", "tenant_2").want(t, exitDone, []string{"0"}, nil)
	run("reconcile").want(t, exitDone, []string{"0"}, nil)
	run("cleanup", "--dry-run").want(t, exitUsage, nil, []string{which, "--outbox"})
	run("cleanup", "--dry-run", "--outbox", "tenant_2").want(t, exitDone, []string{"journal rows"}, nil)
	run("init", "--roles", "--dry-run").want(t, exitDone, []string{`GRANT USAGE ON SCHEMA "tenant_3" TO "relay_rw"`,
		`ON "tenant_1"."outbox_events" TO`}, nil)

	s.pg.Exec(t, `DROP SCHEMA tenant_2 CASCADE`)
	run("dlq", "list", "--outbox", "tenant_2", "--json").want(t, exitDone, []string{`"outbox": "tenant_2.outbox_events"`},
		nil)
	s.pagesOfEach(t)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}
}

// pagesOfEach parks events of two outboxes by hand, and goes through them in pages of one.
func (s services) pagesOfEach(t *testing.T) {
	t.Helper()
	s.pg.Exec(t, `INSERT INTO cdc_relay_parked (source, event_id, topic, key, epoch, from_stream, position_order,
		position_index, aggregate_type, aggregate_id, event_type, payload, retry_count, next_retry_at, error_class)
		SELECT o.source, ('00000000-0000-7000-8000-' || lpad((900 + i)::text, 12, '0'))::uuid, 't',
		CASE WHEN i < 3 THEN convert_to('k' || i, 'UTF8') END, 0, true, 1, i, 'order', 'k', 'e', '{}', 1,
		now() + interval '1 day', 'transient' FROM cdc_relay_source o, generate_series(1, 4) i
		WHERE o.table_name IN ('tenant_1.outbox_events', 'tenant_3.outbox_events')`)
	seen := map[string]int{}
	var page store.Page[store.ParkedKey]
	for after := ""; ; after = page.Next {
		o := cdcRelay(t, s.environ, "parked", "list", "--limit", "1", "--json", "--after", after)
		page = store.Page[store.ParkedKey]{}
		if err := json.Unmarshal([]byte(o.out), &page); err != nil {
			t.Fatalf("%v in %s %s", err, o.out, o.errors)
		}
		for _, k := range page.Items {
			seen[k.Outbox+" "+k.ID]++
		}
		if page.Next == "" {
			break
		}
	}
	if len(seen) != 8 {
		t.Errorf("parked events in pages of one: got %v, want four of each of two outboxes, once", seen)
	}
}
