package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a step that is not idempotent, or a plan that leaves something out.
func TestPlanIsWhatMigrateRunsAndThenEmpty(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.Schema, c.Table = "relay", "app.outbox_events"
	s := open(t, c)
	plan, err := s.Plan(t.Context())
	must(t, "plan", err)
	if got := pg.Query(t, `SELECT to_regclass('app.outbox_events')`); got != "" {
		t.Fatalf("Plan created %s, want nothing created", got)
	}
	pg.Exec(t, strings.Join(plan, "\n"))
	if plan, err = s.Plan(t.Context()); err != nil || len(plan) != 0 {
		t.Fatalf("plan after its statements ran by hand: got %d statements %q, %v, want none", len(plan), plan, err)
	}
	must(t, "migrate with nothing missing", s.Migrate(t.Context()))
	for _, table := range []string{"app.outbox_events", "relay.outbox_events_dlq", "relay.outbox_events_status",
		"relay.cdc_relay_journal"} {
		if got := pg.Query(t, fmt.Sprintf(`SELECT to_regclass('%s')`, table)); got == "" {
			t.Errorf("%s does not exist after the plan", table)
		}
	}
}

// The view goes with the outbox; everything else of the relay's stays, and a start needs no view. Break caught: a view
// that is never made again. Seen to fail so without MakeView, and (plan) with a plan that has only the steps.
func TestViewOfADroppedOutboxIsMadeAgain(t *testing.T) {
	pg := harness.Postgres(t)
	s := open(t, usual(t, pg))
	must(t, "migrate", s.Migrate(t.Context()))
	create := `CREATE TABLE again (LIKE outbox_events INCLUDING ALL); DROP TABLE outbox_events CASCADE;
ALTER TABLE again RENAME TO outbox_events`
	pg.Exec(t, create)
	plan, err := s.Plan(t.Context())
	if err != nil || len(plan) != 1 || !strings.Contains(plan[0], "REPLACE VIEW") {
		t.Fatalf("plan without the view: got %q, %v, want the view alone", plan, err)
	}
	must(t, "migrate", s.Migrate(t.Context()))
	must(t, "make the view", s.MakeView(t.Context()))
	must(t, "make the view that is there", s.MakeView(t.Context()))
	if got := pg.Query(t, "SELECT count(*) FROM outbox_events_status"); got != "0" {
		t.Errorf("rows of the view: got %s, want 0", got)
	}
}

// An installation at the schema's version is up to date; an older one cannot be upgraded. Break it catches: statements
// run on tables that they do not fit. Seen to fail with the versions before the schema let through.
func TestTablesOfAVersionBeforeTheSchemaAreRefused(t *testing.T) {
	pg := harness.Postgres(t)
	s := open(t, usual(t, pg))
	must(t, "migrate", s.Migrate(t.Context()))
	if plan, err := s.Plan(t.Context()); err != nil || len(plan) > 0 {
		t.Fatalf("plan of the present version: got %q, %v, want nothing", plan, err)
	}
	pg.Exec(t, `UPDATE cdc_relay_schema SET version = version - 1`)
	_, err := s.Plan(t.Context())
	for what, err := range map[string]error{"plan": err, "migrate": s.Migrate(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "before 0.1.0") ||
			!strings.Contains(err.Error(), "set postgres.schema") {
			t.Errorf("%s of an older version: got %v, want an error that says what to do", what, err)
		}
	}
}

// Break caught: without the advisory lock the second CREATE fails with 42P07 or 23505 (seen to fail so).
func TestManyMigratesAtOnceAllSucceed(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	var all sync.WaitGroup
	for range 6 {
		s := open(t, c)
		all.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	all.Wait()
}

// Break caught: a second outbox that finds the relay's part migrated and gets no dead letters and no view.
func TestTwoOutboxesShareOneSchemaIfTheirIDsAreOfOneType(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate the first", open(t, usual(t, pg)).Migrate(t.Context()))
	second := usual(t, pg)
	second.Table = "public.second"
	registered(t, second)
	if got := pg.Query(t, `SELECT count(*) FROM second_status, second_dlq`); got != "0" {
		t.Errorf("rows of the second outbox's view and dead letters: got %q, want 0", got)
	}
	pg.Exec(t, `CREATE TABLE third (id bigint PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, created_at timestamptz)`)
	third := usual(t, pg)
	third.Table = "public.third"
	err := open(t, third).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set postgres.schema") {
		t.Errorf("outbox with bigint ids beside one with uuids: got %v, want an error that says to set postgres.schema", err)
	}
}

// Breaks caught: a default that does not give version 7 (order of ids is not the order of insertion), or an index that
// names published_at and makes marks non-HOT.
func TestOwnOutboxHasTimeOrderedIDsAndHotMarks(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('a', '1', 't', '{}')`)
	pg.Exec(t, `SELECT pg_sleep(0.01); INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('a', '1', 't', '{}')`)
	if got := pg.Query(t,
		`SELECT string_agg(seq::text || substr(id::text, 15, 1), ',' ORDER BY id) FROM outbox_events`); got != "17,27" {
		t.Errorf("seq and version nibble in id order: got %s, want 17,27", got)
	}
	if got := pg.Query(t,
		`SELECT count(*) FROM pg_indexes WHERE tablename = 'outbox_events' AND indexdef LIKE '%published_at%'`); got != "0" {
		t.Errorf("indexes that name published_at: got %s, want 0", got)
	}
}

// Break caught: an error that leaves the person to guess; a message without the repair.
func TestOutboxErrorNamesTheColumnAndTheRepair(t *testing.T) {
	pg := harness.Postgres(t)
	for _, row := range []struct{ name, ddl, column, repair string }{
		{"missing",
			`id uuid PRIMARY KEY, aggregate_type text, agg_id text, event_type text, payload jsonb, created_at timestamptz`,
			`"aggregate_id"`,
			`set outbox.columns.aggregate_id to one of its columns (id, aggregate_type, agg_id, event_type, payload, created_at); if it is missing, ALTER TABLE "public"."outbox_events" ADD COLUMN "aggregate_id" text`},
		{"payload type",
			`id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload xml, created_at timestamptz`,
			`"payload" is of type xml`, "set outbox.columns.payload"},
		{"id type",
			`id numeric PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb, created_at timestamptz`,
			`"id" is of type numeric`, "set outbox.columns.id"},
		{"generated",
			`id uuid PRIMARY KEY, a text, aggregate_type text GENERATED ALWAYS AS (a || 'x') STORED, aggregate_id text, event_type text, payload jsonb, created_at timestamptz`,
			`"aggregate_type" is generated`, "set outbox.columns.aggregate_type"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pg.Exec(t, `DROP TABLE IF EXISTS outbox_events; CREATE TABLE outbox_events (`+row.ddl+`)`)
			_, err := open(t, usual(t, pg)).Outbox(t.Context())
			if err == nil || !strings.Contains(err.Error(), row.column) || !strings.Contains(err.Error(), row.repair) {
				t.Errorf("got %v, want the column %s and the repair %q", err, row.column, row.repair)
			}
		})
	}
}

// Break caught: a mark that moves rows between partitions is replicated as a second INSERT of the event. Seen to fail
// with expressions, and partitions of partitions, not looked at, and with a partitioned table that no mark moves
// refused.
func TestOutboxRefusesAMarkThatMovesRowsBetweenPartitions(t *testing.T) {
	const moves, stays = "published_at = now(), done = true", "published_at = now()"
	for _, row := range []struct{ key, mark, more, want string }{
		{"LIST (done)", moves, "", `mark_set changes "done"`},
		{"LIST (done)", "", "", ""},
		{"LIST ((published_at IS NULL))", stays, "", `mark_set changes "published_at"`},
		{"RANGE (created_at, date_trunc('day', created_at), (done IS TRUE))", moves, "", `mark_set changes "done"`},
		{"RANGE (created_at)", moves, "PARTITION BY LIST (done)", `mark_set changes "done"`},
		{"RANGE (created_at)", stays, "PARTITION BY LIST (done)", ""},
	} {
		t.Run(row.key+" "+row.mark+" "+row.more, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, `CREATE TABLE outbox_events (id uuid, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb,
 created_at timestamp, published_at timestamptz, done boolean, CONSTRAINT c CHECK (done OR published_at IS NULL))
 PARTITION BY `+row.key+`;
CREATE TABLE part (published_at timestamptz, done boolean, created_at timestamp, payload jsonb, event_type text,
 aggregate_id text, aggregate_type text, id uuid,
 CONSTRAINT c CHECK (done OR published_at IS NULL)) `+row.more+`;
ALTER TABLE outbox_events ATTACH PARTITION part DEFAULT; CREATE INDEX ON outbox_events (done, published_at)`)
			c := usual(t, pg)
			c.MarkSet = row.mark
			o, err := open(t, c).Outbox(t.Context())
			switch {
			case row.want != "":
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("got %v, want an error with %s", err, row.want)
				}
			case err != nil || !o.Partitioned || o.MarkSet != stays:
				t.Errorf("got partitioned %v, mark %q, %v; want true and %s", o.Partitioned, o.MarkSet, err, stays)
			}
		})
	}
}

// Break caught: a name that reaches SQL unquoted anywhere in the package.
func TestNamesThatNeedQuotesWorkInEveryCall(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE SCHEMA "My ""Sch'ema"; CREATE TABLE "My ""Sch'ema"."Out.Bo'x\{id}"
 ("I d" text PRIMARY KEY, "Type" text, "order" text, "select" text, "Pay""load" bytea, "Head;ers" json,
 "created-at" timestamp, "ex tra" integer, published_at timestamptz)`)
	c := usual(t, pg)
	c.Schema, c.Table = `re lay"s`, `"My ""Sch'ema"."Out.Bo'x\{id}"`
	c.Columns = outbox.Columns{ID: "I d", AggregateType: "Type", AggregateID: "order", EventType: "select",
		Payload: `Pay"load`,
		Headers: "Head;ers", CreatedAt: "created-at", Extra: []string{"ex tra"}}
	s := owner(t, pg, c)
	pg.Exec(t, `INSERT INTO "My ""Sch'ema"."Out.Bo'x\{id}" SELECT 'id''' || i, 'T', 'k', 'e', '\x00ff', '{"a":"b"}',
 '2026-01-02 03:04:05', i
 FROM generate_series(1, 3) i`)
	everyCall(t, s, func(i int) string { return fmt.Sprintf("id'%d", i) })
	problems, err := s.CheckPublication(t.Context(), "test")
	if err != nil || len(problems) != 0 {
		t.Errorf("publication: got %v, %v, want no problem", problems, err)
	}
}

// everyCall goes through the life of three rows: 1 published, 2 dead, 3 caught up.
func everyCall(t *testing.T, s *store.Store, id func(i int) string) {
	t.Helper()
	ctx := t.Context()
	want := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	count, err := s.CountUnrecorded(ctx, 0)
	want("unrecorded rows", count, 3, err)
	rows, err := s.SnapshotCatchUp(ctx)
	want("rows to catch up", rows, 3, err)
	page, err := s.CatchUpRows(ctx, 0, 10)
	if want("page", len(page), 3, err); len(page) != 3 {
		t.FailNow()
	}
	want("first id", string(page[0].Event.ID), id(1), nil)
	dead := store.Dead{Event: &page[1].Event, Topic: "t", Partition: -1, Attempts: 1, Class: outbox.Permanent, Code: "C",
		Text: "x\x00\xff"}
	must(t, "settle", s.Settle(ctx, published(1, func(int) string { return id(1) }), []store.Dead{dead}))
	found, err := s.Lookup(ctx, [][]byte{[]byte(id(1)), []byte(id(2)), []byte(id(3))})
	want("look-up", found, []bool{true, true, false}, err)
	page, err = s.CatchUpRows(ctx, 0, 10)
	want("rest of the page", len(page), 1, err)
	must(t, "finish the catch-up", s.FinishCatchUp(ctx))
	lag, _, err := s.MirrorLag(ctx)
	want("mirror lag", lag, 1, err)
	mirrorAll(t, s, 1)
	must(t, "save progress", s.SaveProgress(ctx, 1<<62))
	pruned, _, err := s.Prune(ctx, 0, 100)
	want("pruned", pruned, 1, err)
	baseline, err := s.SetBaseline(ctx)
	want("baseline", baseline, 1, err)
	count, err = s.CountUnrecorded(ctx, 0)
	want("unrecorded rows in the end", count, 0, err)
}

// mirrorAll steps until want rows are marked: a transaction of another test on the same server may make it wait.
func mirrorAll(t *testing.T, s *store.Store, want int) {
	t.Helper()
	marked := 0
	harness.Eventually(t, waitLong, "mirror", func(ctx context.Context) string {
		rows, _, err := s.MirrorStep(ctx, 1000)
		if marked += rows; err != nil || marked != want {
			return fmt.Sprintf("marked %d of %d rows, %v", marked, want, err)
		}
		return ""
	})
}
