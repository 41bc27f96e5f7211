package store_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// viewed selects the view's columns of each event except its id, in the order of the ids.
const viewed = `SELECT string_agg(concat_ws(' ', status, event_type, aggregate_type, aggregate_id, created_at), ', '
 ORDER BY id) FROM `

// The view says what an event is, by the columns that the table has. Breaks it catches: a column by another name that
// is not found; a composed aggregate that is not; a time without a zone read in the session's. Seen to fail with each.
func TestStatusViewSaysWhatEventsAre(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `SET timezone = 'Asia/Tokyo'; CREATE TABLE "Out" ("Id" bigint PRIMARY KEY, "Type" varchar(20), tenant text,
 order_id int, "Pay" json, "At" timestamp, published_at timestamptz);
INSERT INTO "Out" VALUES (1, 'made', 'acme', 17, '{}', '2026-01-02 03:04:05', now()),
 (2, 'sent', NULL, NULL, '{"a": 1}', 'infinity', NULL), (3, NULL, 'acme', NULL, NULL, NULL, NULL)`)
	c := usual(t, pg)
	c.Table, c.Columns = "public.Out", composedColumns
	c.Columns.Payload, c.Columns.CreatedAt = "Pay", "At"
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	got := pg.Query(t, `SELECT set_config('timezone', 'Asia/Tokyo', false) || ' ' || (`+viewed+`"Out_status")`)
	want := `Asia/Tokyo published made v1.made acme:'\17 2026-01-02 12:04:05+09, pending sent v1.sent infinity, ` +
		`pending acme:'\`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	second := usual(t, pg)
	second.Schema, second.Table, second.Columns = "bare", "public.Out", outbox.Columns{ID: "Id", EventType: "Type",
		Payload: "Pay"}
	must(t, "migrate without an aggregate and a time", open(t, second).Migrate(t.Context()))
	if got, want := pg.Query(t, viewed+`bare."Out_status"`), "published made, pending sent, pending"; got != want {
		t.Errorf("without an aggregate: got %s, want %s", got, want)
	}
}

// The application changes its table as it likes. Breaks it catches: a view that stands in the way of its migrations, or
// fails after them, or costs a look into every payload when no one asks what an event is. Seen to fail with the columns
// named in the view.
func TestStatusViewStaysOutOfTheApplicationsMigrations(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
 VALUES ('order', '17', 'made', '{}', '2026-01-02 03:04:05+00')`)
	for _, step := range []struct{ migration, want string }{
		{"ALTER TABLE outbox_events ALTER COLUMN event_type TYPE varchar(40)",
			"pending made order 17 2026-01-02 03:04:05+00"},
		{"ALTER TABLE outbox_events ALTER COLUMN aggregate_id TYPE bigint USING aggregate_id::bigint",
			"pending made order 17 2026-01-02 03:04:05+00"},
		{"DROP INDEX outbox_events_created_at_idx; ALTER TABLE outbox_events ALTER COLUMN created_at TYPE timestamp " +
			"USING created_at AT TIME ZONE 'UTC'", "pending made order 17 2026-01-02 03:04:05+00"},
		{"ALTER TABLE outbox_events DROP COLUMN aggregate_type, DROP COLUMN payload",
			"pending made 17 2026-01-02 03:04:05+00"},
		{"ALTER TABLE outbox_events ADD COLUMN aggregate_type text DEFAULT 'new'",
			"pending made new 17 2026-01-02 03:04:05+00"},
		{"ALTER TABLE outbox_events RENAME COLUMN event_type TO kind", "pending new 17 2026-01-02 03:04:05+00"},
		{"ALTER TABLE outbox_events DROP COLUMN created_at, DROP COLUMN kind", "pending new 17"},
	} {
		pg.Exec(t, step.migration)
		if got := pg.Query(t, viewed+"outbox_events_status"); got != step.want {
			t.Errorf("after %s: got %s, want %s", step.migration, got, step.want)
		}
	}
	conn := pg.Connect(t)
	rows, err := conn.Query(t.Context(), "EXPLAIN VERBOSE SELECT id, status FROM outbox_events_status")
	must(t, "explain", err)
	for rows.Next() {
		// Only a row that is not published and was written after its journal row is looked into.
		text := string(rows.RawValues()[0])
		if strings.Contains(text, "to_jsonb") && !strings.Contains(text, "Filter: CASE WHEN") {
			t.Errorf("a status costs a look into the row: %s", text)
		}
	}
	must(t, "explain", rows.Err())
}

// Breaks caught: a count that is one less once the last attempt has failed than before it; one that begins again with a
// replay, though the dead letter, and what the application's own row shows by outbox.retry_set, count on.
func TestStatusViewCountsFailedAttempts(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 3)
	count := func(n int) string {
		return pg.Query(t, `SELECT status || ' ' || retry_count FROM outbox_events_status WHERE id = '`+uuid(n)+`'`)
	}
	parked := parkedAt(0, "k", 0)
	parked.Class, parked.Attempts = outbox.Transient, 5
	parkAll(t, s, []store.Parked{parked})
	letter := dead(1)
	letter.Attempts = 6
	must(t, "settle a dead letter", s.Settle(t.Context(), nil, []store.Dead{letter}))
	for n, want := range []string{"retrying 5", "failed 6", "pending 0"} {
		if got := count(n); got != want {
			t.Errorf("event %d: got %s, want %s", n, got, want)
		}
	}
	id, err := s.AddRequest(t.Context(), store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "ask for a replay", err)
	request, err := s.Request(t.Context(), id)
	must(t, "read the request", err)
	_, err = s.ReplayDead(t.Context(), request, store.DeadCursor{}, 10)
	must(t, "replay", err)
	must(t, "fail again", s.RetryLater(t.Context(), []store.Attempt{{ID: []byte(uuid(1)), Attempts: 1,
		RetryIn: time.Minute, Class: outbox.Transient, Text: "again"}}))
	if got, want := count(1), "retrying 7"; got != want {
		t.Errorf("replayed and failed once more: got %s, want %s", got, want)
	}
}

// A json column keeps what jsonb refuses, and one such row must not hide all others. Breaks it catches: a view that
// fails on it; one that takes the text of a backslash for an escape. Seen to fail with the row made jsonb as it is
// (unsupported Unicode escape sequence), and (invalid input syntax) with the escape of a backslash not kept apart.
func TestStatusViewBearsWhatOnlyJSONHolds(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE events (id bigint PRIMARY KEY, type text, payload json);
INSERT INTO events VALUES (1, 'nul', '{"a": "x\u0000y"}'), (2, 'half', '["\ud83d", "\uDE00"]'),
 (3, 'pair', '{"\ud83d\ude00": null}'), (4, 'text\u0000', '{"a": "\\u0000", "b": "\\\u0000"}'), (5, 'plain', '{}')`)
	c := usual(t, pg)
	c.Table, c.Columns = "public.events", outbox.Columns{ID: "id", EventType: "type", Payload: "payload"}
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	got := pg.Query(t, "SELECT string_agg(event_type, ' ' ORDER BY id) FROM events_status WHERE status = 'pending'")
	if want := `nul half pair text\u0000 plain`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// olderView makes the view as it was when it did not say yet what an event is.
const olderView = `DO $$ BEGIN EXECUTE 'CREATE VIEW older AS SELECT id, status, published_at, topic, partition,
 "offset", retry_count, next_retry_at, last_error, error_class, last_error_at FROM (' ||
 rtrim(pg_get_viewdef('outbox_events_status'), ';') || ') v'; END $$;
DROP VIEW outbox_events_status; ALTER VIEW older RENAME TO outbox_events_status`

// Breaks it catches: a view that goes on with the columns of an older configuration, or one of an older version without
// the newer columns. Seen to fail with a view that is there left alone.
func TestInitRenewsAViewOfAnotherConfiguration(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
 VALUES ('order', '17', 'made', '{}', '2026-01-02 03:04:05+00')`)
	c.Columns.EventType, c.PublishedWhen = "aggregate_id", "payload IS NOT NULL"
	for _, want := range []string{"published 17 order 17 2026-01-02 03:04:05+00",
		"published made order 17 2026-01-02 03:04:05+00"} {
		s := open(t, c)
		if plan, err := s.Plan(t.Context()); err != nil || len(plan) != 1 || !strings.Contains(plan[0], "REPLACE VIEW") {
			t.Errorf("plan: got %q, %v; want the view", plan, err)
		}
		must(t, "make the view", s.MakeView(t.Context()))
		if plan, err := s.Plan(t.Context()); err != nil || len(plan) > 0 {
			t.Errorf("plan afterwards: got %q, %v; want none", plan, err)
		}
		if got := pg.Query(t, viewed+"outbox_events_status"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.Columns.EventType = "event_type"
		pg.Exec(t, olderView)
	}
}

// documented is the SQL of a page for users, by its first comment.
func documented(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{"../../docs/events.md", "../../docs/operations.md"} {
		page, err := os.ReadFile(path)
		must(t, "read the page", err)
		if m := regexp.MustCompile("(?s)```sql\n-- " + name + "\n(.*?);\n```").FindSubmatch(page); m != nil {
			return string(m[1])
		}
	}
	t.Fatalf("no page has SQL with the comment %q", name)
	return ""
}

// What the page's queries cost while much is pending; docs/events.md. A row may cost what a hundred hashes of it cost
// on the same server, so that a busy machine changes nothing. Break it catches: a view that takes minutes. Seen to fail
// with half a millisecond of pg_sleep for each row in the view.
func TestMonitoringQueriesOverManyRows(t *testing.T) {
	rows := harness.Count(t, "pending rows of the view")
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 SELECT 'order', i, 'made ' || i %% 10, jsonb_build_object('n', i, 'filler', repeat('x', 300))
 FROM generate_series(1, %d) i; ANALYZE outbox_events`, rows))
	ask := func(sql string) (got string, took time.Duration) {
		begun := time.Now()
		got = pg.Query(t, sql)
		return got, time.Since(begun)
	}
	for _, name := range []string{"pending per type", "oldest per type"} {
		sql := "SELECT count(*) FROM (" + documented(t, name) + ") q"
		best := math.Inf(1)
		for range 5 { // a pause of the machine may fall into one of the two
			got, took := ask(sql)
			_, hashes := ask(`SELECT max(md5(n || payload::text)) FROM outbox_events, generate_series(1, 100) n`)
			t.Logf("%s, %d pending rows: %v, the hashes %v", name, rows, took.Round(time.Millisecond),
				hashes.Round(time.Millisecond))
			if got != "10" {
				t.Errorf("%s: got %s rows, want one for each of 10 types", name, got)
			}
			if best = min(best, took.Seconds()/hashes.Seconds()); best <= 1 {
				break
			}
		}
		if best > 1 {
			t.Errorf("%s took %.1f times as long as 100 hashes of each row, want at most once", name, best)
		}
	}
}

// The page's two queries run and say what is pending. Seen to fail with the youngest on the page in the place of the
// oldest, and with published events counted.
func TestMonitoringQueriesAreAsTheirPageSays(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at, published_at)
 SELECT 'order', i, CASE WHEN i % 3 = 0 THEN 'gone' ELSE 'made' END, '{}', now() - i * interval '1 minute',
  CASE WHEN i > 6 THEN now() END FROM generate_series(1, 9) i`)
	for name, want := range map[string]string{
		"pending per type": "made pending 4, gone pending 2",
		"oldest per type":  "gone 6, made 5",
	} {
		text := `SELECT string_agg(concat_ws(' ', q.event_type, ` + map[string]string{
			"pending per type": "q.status, q.events", "oldest per type": "extract(epoch FROM q.age)::int / 60"}[name] +
			`), ', ') FROM (` + documented(t, name) + `) q`
		if got := pg.Query(t, text); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// What stands under a name that the relay needs is named and left alone. Breaks it catches: an error of the server
// without a way out, a view of another outbox that is replaced, a table of the application taken for dead letters.
// Seen to fail with the plan looking for nothing: with "relation already exists", and with the view of a.outbox_events
// replaced by the one of b.outbox_events, and with the view not looked at before it is made again.
func TestInitNamesWhatIsInItsWay(t *testing.T) {
	for _, test := range []struct{ name, there, what, fix string }{
		{"dead letters", "CREATE TABLE outbox_events_dlq (id bigint)", `table "public"."outbox_events_dlq"`, "dlq.table"},
		{"a view as dead letters", "CREATE VIEW outbox_events_dlq AS SELECT 1", `view "public"."outbox_events_dlq"`,
			"dlq.table"},
		{"the view", "CREATE TABLE outbox_events_status (id bigint)", `table "public"."outbox_events_status"`,
			"postgres.schema"},
		{"the application's view", "CREATE VIEW outbox_events_status AS SELECT 1 AS id",
			`view "public"."outbox_events_status"`, "postgres.schema"},
		{"the state", "CREATE TABLE cdc_relay_state (id bigint)", `table "public"."cdc_relay_state"`, "postgres.schema"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, test.there)
			before := pg.Query(t, "SELECT count(*) FROM pg_class")
			s := open(t, usual(t, pg))
			_, err := s.Plan(t.Context())
			for _, err := range []error{err, s.Migrate(t.Context())} {
				obstacle, is := errors.AsType[*store.ObstacleError](err)
				if !is || !strings.Contains(obstacle.What, test.what) || !strings.Contains(obstacle.Fix, test.fix) {
					t.Errorf("got %v, want an error that names %s and %s", err, test.what, test.fix)
				}
			}
			if after := pg.Query(t, "SELECT count(*) FROM pg_class"); after != before {
				t.Errorf("relations: got %s, want %s as before", after, before)
			}
		})
	}
	pg := harness.Postgres(t)
	pg.Exec(t, "CREATE SCHEMA a; CREATE SCHEMA b")
	one, two := usual(t, pg), usual(t, pg)
	one.Table, two.Table, two.DLQTable = "a.outbox_events", "b.outbox_events", "b.dead"
	must(t, "migrate one", open(t, one).Migrate(t.Context()))
	for _, create := range []func(*store.Store) error{
		func(s *store.Store) error { return s.Migrate(t.Context()) },
		func(s *store.Store) error { return s.MakeView(t.Context()) }, // its tables are there: they are those of one
	} {
		s := open(t, two)
		_, err := s.Plan(t.Context())
		for _, err := range []error{err, create(s)} {
			if obstacle, is := errors.AsType[*store.ObstacleError](err); !is || !strings.Contains(obstacle.What,
				"a.outbox_events") {
				t.Errorf("a second outbox of one name: got %v, want an error that names a.outbox_events", err)
			}
		}
		two.DLQTable = ""
	}
	if plan, err := open(t, one).Plan(t.Context()); err != nil || len(plan) > 0 {
		t.Errorf("plan of one afterwards: got %q, %v; want none", plan, err)
	}
	two.Schema = "b"
	must(t, "migrate two in its own schema", open(t, two).Migrate(t.Context()))
}

// The page's way to wider ids works while events are there, and init makes the view again. Written, but not run, to
// fail with a view that was replaced where its id has another type (cannot change data type of view column), and
// without the DROP VIEW on the page (cannot alter type of a column used by a view or rule).
func TestIDsBecomeBigintAsThePageSays(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id integer GENERATED BY DEFAULT AS IDENTITY (START 2147483647) PRIMARY KEY,
 aggregate_type text NOT NULL, aggregate_id text, event_type text NOT NULL, payload jsonb,
 created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz)`)
	s := open(t, usual(t, pg))
	must(t, "migrate", s.Migrate(t.Context()))
	const insert = `INSERT INTO outbox_events (aggregate_type, event_type, created_at) VALUES ('a', 'made', '2026-01-02Z')`
	pg.Exec(t, insert)
	pg.Exec(t, documented(t, "ids become bigint"))
	pg.Exec(t, insert)
	must(t, "make the view", s.MakeView(t.Context()))
	want := "pending made a 2026-01-02 00:00:00+00"
	if got := pg.Query(t, viewed+"outbox_events_status"); got != want+", "+want {
		t.Errorf("got %s, want two of %s", got, want)
	}
	// Without the page, where someone has widened the column of a view that was made again by hand.
	pg.Exec(t, `DROP VIEW outbox_events_status; CREATE VIEW outbox_events_status AS SELECT id::int, payload::text FROM
 outbox_events JOIN cdc_relay_journal j ON j.event_id = id`)
	must(t, "make the view again", s.MakeView(t.Context()))
	if got := pg.Query(t, "SELECT max(id) FROM outbox_events_status"); got != "2147483648" {
		t.Errorf("largest id of the view: got %s, want 2147483648", got)
	}
}
