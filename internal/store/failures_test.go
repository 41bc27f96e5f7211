package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// showing is an outbox whose rows say what became of their events, and how it is configured.
type showing struct {
	create, look string
	config       func(c *store.Config)
	dead, again  string // what a row shows: dead, and replayed
}

// The styles of two kinds of applications: flags, and an enum beside quoted names and text ids.
var showings = map[string]showing{
	"flags": {
		create: `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, headers jsonb, created_at timestamptz DEFAULT now(), processed boolean NOT NULL DEFAULT false,
 processed_at timestamptz, retry_count int NOT NULL DEFAULT 0, last_error varchar(80));
INSERT INTO outbox_events (id) SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid
 FROM generate_series(0, 5) i`,
		look: `SELECT string_agg(concat_ws(' ', processed, retry_count, last_error), ', ' ORDER BY id) FROM outbox_events
 WHERE id = ANY ($1::text[]::uuid[])`,
		config: func(c *store.Config) {
			c.PublishedWhen, c.MarkSet = "processed", "processed = true, processed_at = now(), last_error = NULL"
			c.DeadSet = "retry_count = {attempts}, last_error = 'dead: ' || {last_error}"
			c.RetrySet = "retry_count = {attempts}, last_error = {error_class} || ': ' || {last_error}"
		},
		dead: "dead: ", again: "transient: ",
	},
	"enum": {
		create: `CREATE TYPE "OutboxStatus" AS ENUM ('PENDING', 'PROCESSED', 'FAILED');
CREATE TABLE outbox_events (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, headers jsonb, created_at timestamptz DEFAULT now(), status "OutboxStatus" NOT NULL DEFAULT 'PENDING',
 retries int NOT NULL DEFAULT 0, "errorMessage" text);
INSERT INTO outbox_events (id) SELECT '00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0')
 FROM generate_series(0, 5) i`,
		look: `SELECT string_agg(concat_ws(' ', status = 'PROCESSED', retries, status || ': ' || "errorMessage"), ', '
 ORDER BY id) FROM outbox_events WHERE id = ANY ($1::text[])`,
		config: func(c *store.Config) {
			c.PublishedWhen, c.MarkSet = "", `status = 'PROCESSED', "errorMessage" = NULL` // only the journal knows
			c.DeadSet = `status = 'FAILED', retries = {attempts}, "errorMessage" = {last_error}`
			c.RetrySet = `status = 'PENDING', retries = {attempts}, "errorMessage" = {last_error}`
		},
		dead: "FAILED: ", again: "PENDING: ",
	},
}

// rows returns the failures that the rows of these numbers show.
func (f showing) rows(t *testing.T, pg *harness.PG, numbers ...int) (shown string) {
	t.Helper()
	var ids []string
	for _, n := range numbers {
		ids = append(ids, uuid(n))
	}
	must(t, "look at the outbox", pg.Connect(t).QueryRow(t.Context(), f.look, ids).Scan(&shown))
	return shown
}

func (f showing) store(t *testing.T, pg *harness.PG) *store.Store {
	t.Helper()
	pg.Exec(t, f.create)
	c := usual(t, pg)
	f.config(&c)
	return owner(t, pg, c)
}

// show shows what is due of a kind, and wants so many due and left.
func show(t *testing.T, what string, step func(context.Context, int, int) (int, int, error), wantDue, wantLeft int) {
	t.Helper()
	due, left, err := step(t.Context(), 0, 100)
	if err != nil || due != wantDue || left != wantLeft {
		t.Fatalf("%s: got %d due and %d left, %v; want %d and %d", what, due, left, err, wantDue, wantLeft)
	}
}

// Breaks it catches: a failure that its row does not show, or with another reason or number of attempts; one that is
// written again and again; a row that says failed while its event waits for another attempt, or once it is published;
// what waits behind a failure shown as one. Seen to fail with the note of what was shown left out, with parked events
// shown that never failed, with dead letters shown that are replayed, and with the attempts of the first life left out.
func TestRowsShowFailuresUntilTheEventIsPublished(t *testing.T) {
	for name, f := range showings {
		t.Run(name, func(t *testing.T) {
			pg := harness.Postgres(t)
			s := f.store(t, pg)
			want := func(when, shown string, numbers ...int) {
				t.Helper()
				if got := f.rows(t, pg, numbers...); got != shown {
					t.Errorf("%s: the rows show %q, want %q", when, got, shown)
				}
			}
			first := deadAt(0, "k")
			first.Attempts, first.Text = 3, `it's "{attempts}"; DROP TABLE x`
			bury(t, s, first, deadAt(1, ""))
			behind, unwell := parkedAt(2, "k", store.NotDue), parkedAt(4, "m", store.WhenWell)
			behind.Attempts, unwell.Attempts = 0, 0
			parkAll(t, s, []store.Parked{parkedAt(3, "l", 0), behind, unwell})
			show(t, "two died", s.ShowDead, 2, 0)
			show(t, "one failed", s.ShowRetried, 1, 0)
			want("two died", "f 3 "+f.dead+first.Text+", f 1 "+f.dead+"why", 0, 1)
			want("one failed", "f 0, f 1 "+f.again+"why, f 0", 2, 3, 4)
			show(t, "they are shown", s.ShowDead, 0, 0)
			show(t, "it is shown", s.ShowRetried, 0, 0)

			replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(0)}}, "ann", ""), 10)
			show(t, "nobody died", s.ShowDead, 0, 0)
			show(t, "one is replayed", s.ShowRetried, 1, 0)
			want("replayed", "f 3 "+f.again+first.Text, 0)
			must(t, "retry later", s.RetryLater(t.Context(), []store.Attempt{{ID: []byte(uuid(0)), Attempts: 1,
				Class: outbox.Transient, Text: "no"}}))
			show(t, "the replay failed", s.ShowRetried, 1, 0)
			want("the replay failed", "f 4 "+f.again+"no", 0)
			again := dead(0)
			again.Attempts, again.Text = 2, "never"
			must(t, "give up", giveUp(t, s, again))
			show(t, "it died again", s.ShowDead, 1, 0)
			want("died again", "f 5 "+f.dead+"never", 0)

			bury(t, s, deadAt(5, ""))
			replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(0), uuid(5)}}, "ann", ""), 10)
			show(t, "replayed before its death was shown", s.ShowDead, 0, 0)
			must(t, "settle", s.SettleRetried(t.Context(), published(1, uuid)))
			show(t, "one of them published before it was shown", s.ShowRetried, 1, 0)
			mirrorAll(t, s, 1)
			show(t, "published", s.ShowDead, 0, 0)
			want("published", "t 5", 0)
		})
	}
}

// Breaks it catches: a wait for a row that the application holds; such a row forgotten; a row that is not visible yet
// taken for one that is gone, so that it never shows its failure; an event without a row looked at forever. Seen to
// fail with locked rows waited for, with what is locked noted as shown, and with the writers' transactions not waited
// for.
func TestFailuresOfRowsThatCannotBeWrittenNowAreShownLater(t *testing.T) {
	pg := harness.Postgres(t)
	s := showings["flags"].store(t, pg)
	application := pg.Connect(t)
	exec(t, application, "BEGIN; INSERT INTO outbox_events (id) VALUES ('"+uuid(9)+"')")
	locker := pg.Connect(t)
	exec(t, locker, "BEGIN; SELECT * FROM outbox_events WHERE id = '"+uuid(1)+"' FOR UPDATE")
	bury(t, s, deadAt(0, ""), deadAt(1, ""), deadAt(9, ""))
	show(t, "one locked, one not visible", s.ShowDead, 3, 2)
	exec(t, locker, "COMMIT")
	exec(t, application, "COMMIT")
	show(t, "both free", s.ShowDead, 2, 0)
	if got, want := showings["flags"].rows(t, pg, 0, 1, 9), "f 1 dead: why, f 1 dead: why, f 1 dead: why"; got != want {
		t.Errorf("the rows show %q, want %q", got, want)
	}
	if got := pg.Query(t, `SELECT count(*) FROM outbox_events WHERE xmax <> 0 AND last_error IS NULL`); got != "0" {
		t.Errorf("rows of other events that were locked: got %s, want 0", got)
	}
	bury(t, s, deadAt(77, ""))
	noOlderTransaction(t, s)
	show(t, "no row", s.ShowDead, 1, 0)
	show(t, "no row, and it was said", s.ShowDead, 0, 0)
}

// Breaks it catches: a failure written into another row of the same id, which is published; one noted as shown whose
// row is locked, because another row lies at the same place of another partition; a failure that comes while one is
// shown noted as shown. Seen to fail with the place, the partition and the time left out, each by itself.
func TestFailuresAreShownInTheRowsThatWereLocked(t *testing.T) {
	f := showings["flags"]
	f.create = `CREATE TABLE outbox_events (id uuid, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, headers jsonb, created_at timestamptz DEFAULT now(), processed boolean NOT NULL DEFAULT false,
 processed_at timestamptz, retry_count int NOT NULL DEFAULT 0, last_error varchar(80), part int)
 PARTITION BY LIST (part);
CREATE TABLE part1 PARTITION OF outbox_events FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF outbox_events FOR VALUES IN (2);
INSERT INTO outbox_events (id, part, processed) VALUES ('` + uuid(0) + `', 1, false), ('` + uuid(0) + `', 1, true),
 ('` + uuid(1) + `', 1, false), ('` + uuid(0) + `', 2, true), ('` + uuid(8) + `', 2, true),
 ('` + uuid(1) + `', 2, false)`
	pg := harness.Postgres(t)
	s := f.store(t, pg)
	bury(t, s, deadAt(0, ""), deadAt(1, ""))
	locker := pg.Connect(t)
	exec(t, locker, "BEGIN; SELECT FROM part2 WHERE id = '"+uuid(1)+"' FOR UPDATE")
	pg.Exec(t, `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
UPDATE outbox_events_dlq SET dead_at = now() + interval '1 s' WHERE original_id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER die AFTER UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION die()`)
	show(t, "one of two rows is locked", s.ShowDead, 2, 1)
	if got := pg.Query(t, `SELECT count(*) FROM outbox_events WHERE processed AND last_error IS NOT NULL`); got != "0" {
		t.Errorf("published rows that show a failure: got %s, want 0", got)
	}
	exec(t, locker, "COMMIT")
	pg.Exec(t, `DROP TRIGGER die ON outbox_events`)
	show(t, "both failed once more while they were shown", s.ShowDead, 2, 0)
	show(t, "both are shown", s.ShowDead, 0, 0)
}

// Break it catches: a note of what was shown that waits for someone who holds the dead letter or the parked event, and
// fails. Seen to fail without SKIP LOCKED, and without the lock.
func TestNotesOfWhatIsShownWaitForNobody(t *testing.T) {
	pg := harness.Postgres(t)
	s := showings["flags"].store(t, pg)
	bury(t, s, deadAt(0, ""))
	parkAll(t, s, []store.Parked{parkedAt(1, "l", 0)})
	holder := pg.Connect(t)
	exec(t, holder, "BEGIN; SELECT FROM outbox_events_dlq FOR UPDATE; SELECT FROM cdc_relay_parked FOR UPDATE")
	show(t, "a dead letter that is held", s.ShowDead, 1, 0)
	show(t, "a parked event that is held", s.ShowRetried, 1, 0)
	exec(t, holder, "COMMIT")
	show(t, "the dead letter, whose note was not taken", s.ShowDead, 1, 0)
	show(t, "the parked event", s.ShowRetried, 1, 0)
	show(t, "nothing", s.ShowDead, 0, 0)
}

// The row is marked as published while a failure is about to be written into it, by a table that does not say itself
// what is published. Breaks it catches: a failure that overwrites a mark, or is written where the journal has the
// event. Seen to fail with rows taken that have changed since the snapshot, and with the journal not looked at.
func TestAFailureNeverOverwritesAMark(t *testing.T) {
	f := showings["enum"]
	plain := f.config
	f.config = func(c *store.Config) {
		plain(c)
		c.PublishedWhen = "public.slow(id)" // false
	}
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE FUNCTION slow(id text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
 WHILE NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.005); END LOOP; RETURN false; END $$`)
	s := f.store(t, pg)
	bury(t, s, deadAt(0, ""), deadAt(1, ""))
	must(t, "settle", s.Settle(t.Context(), published(2, uuid)[1:], nil)) // another relay, which lost the slot
	holder := pg.Connect(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	done, left := make(chan error), 0
	go func() {
		var err error
		_, left, err = s.ShowDead(t.Context(), 0, 10)
		done <- err
	}()
	harness.Eventually(t, waitLong, "the statement has its snapshot", func(context.Context) string {
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	})
	pg.Exec(t, `UPDATE outbox_events SET status = 'PROCESSED' WHERE id = '`+uuid(0)+`'`)
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	must(t, "show", <-done)
	if got, want := f.rows(t, pg, 0, 1), "t 0, f 0"; got != want || left != 1 {
		t.Errorf("the rows show %q, and %d is left; want %q and 1", got, left, want)
	}
}

// Breaks it catches: a failure that makes a row count as published, so that a catch-up passes over it. Seen to fail
// with the rows not looked at again.
func TestAFailureThatWouldCountAsPublishedIsRefused(t *testing.T) {
	f := showings["flags"]
	plain := f.config
	f.config = func(c *store.Config) {
		plain(c)
		c.PublishedWhen = "processed OR retry_count > 2"
	}
	pg := harness.Postgres(t)
	s := f.store(t, pg)
	often := deadAt(1, "")
	often.Attempts = 3
	bury(t, s, deadAt(0, ""), often)
	_, left, err := s.ShowDead(t.Context(), 0, 10)
	if err == nil || left != 2 || !strings.Contains(err.Error(), "outbox.dead_set") ||
		!strings.Contains(err.Error(), "outbox.published_when (processed OR retry_count > 2)") {
		t.Errorf("got %d left, %v; want both, and the two keys", left, err)
	}
	if got := f.rows(t, pg, 0, 1); got != "f 0, f 0" {
		t.Errorf("the rows show %q, want nothing", got)
	}
}

// Breaks it catches: assignments that are wrong and are found only when an event dies, or that bring a statement of
// their own along. Seen to fail with them not looked at.
func TestCheckExpressionsLooksAtWhatShowsFailures(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, showings["flags"].create)
	c := usual(t, pg)
	showings["flags"].config(&c)
	must(t, "check", open(t, c).CheckExpressions(t.Context()))
	c.DeadSet = "retry_count = {attempts} -- so"
	must(t, "check a comment", open(t, c).CheckExpressions(t.Context()))
	for _, set := range []string{"foo = {last_error}", "processed = {attempts}", "retry_count = {last_error}",
		"retry_count = 1;drop", "retry_count = 1 WHERE true", "retry_count = 1 RETURNING 1", "retry_count = 1 FROM pg_class",
		"retry_count = 1 WHERE true), gone AS (DELETE FROM outbox_events", "retry_count = 1 /*", "last_error = '"} {
		c.DeadSet, c.RetrySet = set, set
		refused := store.ExpressionErrors(open(t, c).CheckExpressions(t.Context()))
		if len(refused) != 2 || refused[0].Key != "outbox.dead_set" || refused[1].Key != "outbox.retry_set" ||
			!strings.Contains(refused[0].Fix, "{last_error}") {
			t.Errorf("%s: got %v, want both keys refused", set, refused)
		}
	}
}
