package store_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// fencedMethods write only as long as no one else has taken over, or say what the owner may send.
var fencedMethods = []string{
	"CatchUpOf",
	"SnapshotCatchUp", "ListsReady",
	"Settle of a dead letter", "FinishCatchUp", "AddTopics", "SaveOffsets", "SaveProgress", "Park",
	"MakeDue", "WakeHeads", "RetryLater",
	"SettleRetried", "SettleRetried of a replay", "GiveUp", "SaveHorizon", "SaveSweep", "CleanStop", "OpenBreaker",
	"CloseBreaker",
	"StartRequest", "ReplayDead", "DiscardDead", "RetryNow", "Republish", "NoteRequest", "SetPause", "FinishRequest",
	"CatchUpRows", "Lookup", "Recognize", "LateRows", "RepublishRows", "OpenSpool", "Spool", "NextSpooled",
	"DeleteSpooled",
}

// unfencedMethods write regardless of the slot's owner: facts, preparation before an owner, people's requests, and what
// any relay may clean up.
var unfencedMethods = []string{
	"Migrate", "Register", "CreatePublication", "Settle", "Settle of a replay", "BeginCatchUp", "BeginCatchUpOfLost",
	"NoteLeftOut", "NoteBaseline", "SetBaseline",
	"MirrorStep", "DeleteStep", "Prune", "PruneDead", "PruneDropped", "NothingToMark", "PruneRequests",
	"AddRequest", "EmitToken", "Barrier",
	"RaiseAlarm", "AckAlarms",
}

// contents is a fingerprint of all rows of the relay's tables and the outbox.
func contents(t *testing.T, pg *harness.PG) string {
	t.Helper()
	return pg.Query(t,
		`SELECT string_agg(c.relname || ' ' || md5(query_to_xml('SELECT * FROM ' || c.oid::regclass || ' x ORDER BY x::text', true, true, '')::text), ' ' ORDER BY relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE relkind = 'r' AND nspname = 'public'`)
}

// Break caught: a relay that has lost the slot, and writes; one whose write is refused as a whole but for a part of
// it; one that takes the epoch of another slot for its own. Seen to fail with the horizon, the topics and the breaker
// written without the fence, each by itself, and with the slot left out of the fence, of the state's and of the
// catch-up's.
func TestEveryFencedMethodIsRefusedAfterATakeOver(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 5)
	methods := everyMethod(s, store.Mark)
	for _, row := range methods { // so that each has something to do, or at least could
		must(t, row.what, row.do(t.Context()))
	}
	must(t, "ask", func() error {
		_, err := s.AddRequest(t.Context(), store.RequestReplay, store.Filter{All: true}, "ann", "")
		return err
	}())
	for _, row := range methods {
		if row.what == "NextRequest" {
			must(t, row.what, row.do(t.Context()))
		}
	}
	pg.Exec(t, `INSERT INTO cdc_relay_epoch (slot, epoch) SELECT 'neighbour', epoch FROM cdc_relay_epoch;
UPDATE cdc_relay_epoch SET epoch = epoch + 1 WHERE slot <> 'neighbour'`)
	for _, row := range methods {
		if slices.Contains(unfencedMethods, row.what) {
			continue
		}
		before := contents(t, pg)
		err := row.do(t.Context())
		if want := slices.Contains(fencedMethods, row.what); errors.Is(err, store.ErrFenced) != want {
			t.Errorf("%s after a take-over by another: got %v, want it fenced: %v", row.what, err, want)
		}
		if after := contents(t, pg); after != before {
			t.Errorf("%s after a take-over by another: it changed rows:\n%s\n%s", row.what, before, after)
		}
	}
}

// asOther is the configuration for a role of the test's own, whose sessions a take-over does not end: as those behind
// a pooler that gives them another name.
func asOther(t *testing.T, pg *harness.PG, c store.Config) store.Config {
	t.Helper()
	role := harness.Unique(t, "other")
	pg.Exec(t, `CREATE ROLE `+role+` LOGIN SUPERUSER`)
	t.Cleanup(func() { dropRole(t, pg, role) })
	u, err := url.Parse(pg.URL)
	must(t, "read the URL", err)
	u.User = url.User(role)
	c.URL = u.String()
	return c
}

// haltWrites has the statements of other roles that do so to the table wait, when they begin, until there is a row in
// go.
func haltWrites(t *testing.T, pg *harness.PG, do, table string) {
	t.Helper()
	pg.Exec(t, `CREATE TABLE go (); CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF current_user <> (SELECT rolname FROM pg_roles WHERE oid = 10) THEN
 LOOP EXIT WHEN EXISTS (SELECT FROM public.go); PERFORM pg_sleep(0.01); END LOOP;
END IF; RETURN NULL; END $$;
CREATE TRIGGER halt BEFORE `+do+` ON `+table+` FOR EACH STATEMENT EXECUTE FUNCTION halt()`)
}

const sleeping = `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event = 'PgSleep'`

// Break caught: a write that was found to be the owner's, and is made beside a take-over or after it. Seen to fail
// without FOR SHARE.
func TestTakeOverWaitsForAFencedWrite(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	old := registered(t, asOther(t, pg, c))
	conn := takeOver(t, pg, c, old)
	haltWrites(t, pg, "INSERT", "cdc_relay_offset")
	written := make(chan error, 1)
	go func() { written <- old.AddTopics(t.Context(), []string{"t"}) }()
	harness.Eventually(t, waitLong, "the write is under way", func(context.Context) string {
		return pg.Query(t, sleeping)
	})
	next := open(t, c)
	taken := make(chan error, 1)
	go func() { _, _, err := next.TakeOver(t.Context(), conn.PID(), 1); taken <- err }()
	harness.Eventually(t, waitLong, "the take-over waits", func(context.Context) string {
		if len(taken) > 0 {
			t.Error("the take-over was done beside a fenced write that was under way")
			return ""
		}
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%taken_lsn%'`)
	})
	pg.Exec(t, `INSERT INTO go DEFAULT VALUES`)
	must(t, "the write that was first", <-written)
	must(t, "the take-over", <-taken)
	if err := old.AddTopics(t.Context(), []string{"u"}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the next write: got %v, want ErrFenced", err)
	}
}

// Break caught: a write of one statement that has seen the epoch as it was before a take-over, and writes after it.
// Seen to fail without FOR SHARE, for each of the three.
func TestStatementThatBeganBeforeATakeOverWritesNothing(t *testing.T) {
	for what, write := range map[string]func(ctx context.Context, s *store.Store) error{
		"progress":   func(ctx context.Context, s *store.Store) error { return s.SaveProgress(ctx, 77) },
		"clean stop": func(ctx context.Context, s *store.Store) error { return s.CleanStop(ctx, 77) },
		"catch-up begun": func(ctx context.Context, s *store.Store) error {
			begun, err := s.BeginCatchUpSince(ctx, 1, true)
			if err == nil && !begun {
				err = store.ErrFenced
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			pg := harness.Postgres(t)
			c := usual(t, pg)
			old := registered(t, asOther(t, pg, c))
			conn := takeOver(t, pg, c, old)
			haltWrites(t, pg, "UPDATE", "cdc_relay_state")
			written := make(chan error, 1)
			go func() { written <- write(t.Context(), old) }()
			harness.Eventually(t, waitLong, "the statement has begun", func(context.Context) string {
				return pg.Query(t, sleeping)
			})
			next := open(t, c)
			_, _, err := next.TakeOver(t.Context(), conn.PID(), 1)
			must(t, "take over", err)
			pg.Exec(t, `INSERT INTO go DEFAULT VALUES`)
			if err := <-written; !errors.Is(err, store.ErrFenced) {
				t.Errorf("%s: got %v, want ErrFenced", what, err)
			}
			if got := pg.Query(t,
				`SELECT concat_ws(' ', confirmed, dirty, catch_up_late) FROM cdc_relay_state`); got != "0/0 t f" {
				t.Errorf("state: got %s, want it as the take-over left it", got)
			}
		})
	}
}

func dropRole(t *testing.T, pg *harness.PG, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), pg.URL) // the test's own context is over
	must(t, "connect to drop the role", err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.PgConn().Exec(context.Background(), "REASSIGN OWNED BY "+role+" TO CURRENT_USER; DROP OWNED BY "+role+
		"; DROP ROLE "+role).ReadAll()
	must(t, "drop the role", err)
}

// Break caught: a list of rows that is made beside a park that is under way, whose event keeps a place of the era
// before. Seen to fail without FOR NO KEY UPDATE.
func TestListOfRowsWaitsForAParkThatIsUnderWay(t *testing.T) {
	pg := harness.Postgres(t)
	c := asOther(t, pg, usual(t, pg))
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 3)
	haltWrites(t, pg, "INSERT", "cdc_relay_parked")
	parked, listed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Park(t.Context(), []store.Parked{parkedAt(1, "k", 0)}); parked <- err }()
	harness.Eventually(t, waitLong, "the park is under way", func(context.Context) string { return pg.Query(t, sleeping) })
	go func() { _, err := s.SnapshotCatchUp(t.Context()); listed <- err }()
	harness.Eventually(t, waitLong, "the list waits", func(context.Context) string {
		if len(listed) > 0 {
			t.Error("the list was made beside a park that was under way")
			return ""
		}
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
	pg.Exec(t, `INSERT INTO go DEFAULT VALUES`)
	must(t, "park", <-parked)
	must(t, "list the rows", <-listed)
	if got := pg.Query(t, `SELECT from_stream FROM cdc_relay_parked`); got != "false" {
		t.Errorf("the parked event's place is one of the stream: got %s, want one in the list", got)
	}
}

// Break caught: a list of rows that waits for what another slot's relay writes, or has that wait. Seen to fail with the
// epochs of all slots locked.
func TestListOfRowsWaitsForNoOtherSlot(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `INSERT INTO cdc_relay_epoch (slot, epoch) VALUES ('neighbour', 1)`)
	neighbour := pg.Connect(t)
	exec(t, neighbour, `BEGIN; SELECT FROM cdc_relay_epoch WHERE slot = 'neighbour' FOR SHARE`)
	if _, err := s.SnapshotCatchUp(t.Context()); err != nil {
		t.Errorf("list the rows beside a write of another slot's relay: got %v", err)
	}
}

// Break caught: a dead letter that is replayed though it was resolved while the replay chose. Seen to fail without
// FOR UPDATE.
func TestReplayTakesNoDeadLetterThatIsResolvedMeanwhile(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"))
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	other := pg.Connect(t)
	exec(t, other, `BEGIN; UPDATE outbox_events_dlq SET discarded_at = now()`)
	replayed := make(chan error, 1)
	var step store.Step
	go func() {
		var err error
		step, err = s.ReplayDead(t.Context(), r, store.DeadCursor{}, 10)
		replayed <- err
	}()
	harness.Eventually(t, waitLong, "the replay waits", func(context.Context) string {
		if len(replayed) > 0 {
			return ""
		}
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
	exec(t, other, `COMMIT`)
	must(t, "replay", <-replayed)
	if step.Seen != 0 || step.Parked != 0 {
		t.Errorf("a dead letter that was discarded meanwhile: got %d seen and %d parked, want none", step.Seen, step.Parked)
	}
}
