package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: a takeover by a relay that does not hold the slot, or holds another one. Seen to fail with the slot, or
// the process, left out of the first look.
func TestTakeOverNeedsTheSlotToBeHeldByOurConnection(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	if _, _, err := s.TakeOver(t.Context(), 1, 1); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("without a slot: got %v, want ErrLeaseLost", err)
	}
	conn := takeOver(t, pg, c, s)
	if _, _, err := s.TakeOver(t.Context(), conn.PID()+1, 1); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("with another's pid: got %v, want ErrLeaseLost", err)
	}
	alive := backend(t, s)
	other := usual(t, pg)
	ofOther := takeOver(t, pg, other, registered(t, other))
	for what, pid := range map[string]uint32{"another pid": conn.PID() + 1, "another slot's pid": ofOther.PID()} {
		if _, _, err := open(t, c).TakeOver(t.Context(), pid, 1); !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("by another relay with %s: got %v, want ErrLeaseLost", what, err)
		}
	}
	if got := backend(t, s); got != alive {
		t.Errorf("the owner's session was ended by a relay that does not hold the slot")
	}
	st, err := s.State(t.Context())
	if err != nil || st.Epoch != 1 {
		t.Errorf("epoch: got %+v, %v, want 1", st, err)
	}
}

// Break caught: a lease that is lost while the takeover waits for a fenced write, and that no one looks at again.
// Seen to fail with `EXISTS (SELECT 1 FROM pg_replication_slots …)` of the second statement replaced by true.
func TestTakeOverFailsWhenTheSlotIsLostOnTheWay(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	old := registered(t, asOther(t, pg, c))
	conn := takeOver(t, pg, c, old)
	haltWrites(t, pg, "INSERT", "cdc_relay_offset")
	written, done := make(chan error, 1), make(chan error, 1)
	go func() { written <- old.AddTopics(t.Context(), []string{"t"}) }()
	harness.Eventually(t, waitLong, "the write is under way", func(context.Context) string {
		return pg.Query(t, sleeping)
	})
	next := open(t, c)
	go func() {
		_, _, err := next.TakeOver(t.Context(), conn.PID(), 1)
		done <- err
	}()
	harness.Eventually(t, waitLong, "takeover waits", func(context.Context) string {
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name LIKE 'cdc-relay/%'`)
	})
	must(t, "leave the slot", conn.Close(t.Context()))
	harness.Eventually(t, waitLong, "slot is free", func(context.Context) string {
		return pg.Query(t, `SELECT min('not yet') FROM pg_replication_slots WHERE active AND slot_name = '`+c.Slot+`'`)
	})
	pg.Exec(t, `INSERT INTO go DEFAULT VALUES`)
	must(t, "the write that was first", <-written)
	if err := <-done; !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("takeover: got %v, want ErrLeaseLost", err)
	}
}

// Break caught: a note of progress that comes behind the clean stop, as of a request that was cut off, and takes the
// position back. Seen to fail with the position set in any case.
func TestProgressBehindACleanStopChangesNothing(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	takeOver(t, pg, c, s)
	must(t, "progress", s.SaveProgress(t.Context(), 5))
	must(t, "clean stop", s.CleanStop(t.Context(), 9))
	must(t, "progress that comes late", s.SaveProgress(t.Context(), 7))
	if st, err := s.State(t.Context()); err != nil || st.Dirty || st.Confirmed != 9 {
		t.Errorf("state: got %+v, %v, want clean at 0/9", st, err)
	}
}

// Breaks caught: an older epoch's session that lives on, a standby's or another slot's that is ended, connections
// that keep the old name, dirty not set, a timeline not noted. Seen to fail with sessions of the present epoch
// spared, with the timeline left as it was, and with each condition on the sessions left out.
func TestTakeOverEndsOlderSessionsOfThisSlotOnly(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	old := registered(t, c)
	conn := takeOver(t, pg, c, old)
	must(t, "clean stop of the old", old.CleanStop(t.Context(), 5))
	oldPID := backend(t, old)
	other := usual(t, pg)
	otherStore := registered(t, other)
	takeOver(t, pg, other, otherStore)
	standby := open(t, c)
	otherPID, standbyPID := backend(t, otherStore), backend(t, standby)
	var name string
	must(t, "ask for the name", old.Pool().QueryRow(t.Context(),
		`SELECT current_setting('application_name')`).Scan(&name))
	elsewhere := harness.Postgres(t)
	elsewhere.URL += "&application_name=" + name
	elsewherePID := int(elsewhere.Connect(t).PgConn().PID())

	must(t, "leave the slot", conn.Close(t.Context()))
	next := open(t, c)
	backend(t, next) // a connection from before the takeover
	conn = takeOver(t, pg, c, next)
	if got := pg.Query(t, fmt.Sprintf(`SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE pid = %d`,
		oldPID)); got != "" {
		t.Errorf("the old epoch's session %s is alive", got)
	}
	for what, pid := range map[string]int{"another slot's": otherPID, "a standby's": standbyPID,
		"another database's": elsewherePID} {
		if got := pg.Query(t, fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE pid = %d`, pid)); got != "1" {
			t.Errorf("%s session %d was ended", what, pid)
		}
	}
	must(t, "ask for the name", next.Pool().QueryRow(t.Context(),
		`SELECT current_setting('application_name')`).Scan(&name))
	if !strings.HasPrefix(name, "cdc-relay/2/") || len(name) != len("cdc-relay/2/")+8 {
		t.Errorf("application_name after the takeover: got %s, want cdc-relay/2/ and 8 hex digits", name)
	}
	if st, err := next.State(t.Context()); err != nil || !st.Dirty || st.Confirmed != 5 {
		t.Errorf("state: got %+v, %v, want dirty, confirmed 0/5", st, err)
	}
	epoch, _, err := next.TakeOver(t.Context(), conn.PID(), 2)
	must(t, "take over on the next timeline", err)
	if epoch != 1002 {
		t.Errorf("epoch at a server that was promoted: got %d, want 1002: it may have missed take-overs", epoch)
	}
	if epoch, _, err = next.TakeOver(t.Context(), conn.PID(), 2); err != nil || epoch != 1003 {
		t.Errorf("the next epoch there: got %d, %v, want 1003", epoch, err)
	}
	if st, err := next.State(t.Context()); err != nil || st.Timeline != 2 {
		t.Errorf("state after a promotion: got %+v, %v, want timeline 2", st, err)
	}
	if st, err := otherStore.State(t.Context()); err != nil || st.Timeline != 1 {
		t.Errorf("another slot's state after that: got %+v, %v, want timeline 1", st, err)
	}
}

func backend(t testing.TB, s *store.Store) (pid int) {
	t.Helper()
	must(t, "ask for the backend", s.Pool().QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	return pid
}

// Breaks caught: a second instance's Register that resets a relay that runs; a new table that inherits "published".
func TestRegisterLeavesAStateThatExistsAndBeginsAgainForANewTable(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := open(t, c)
	must(t, "migrate", s.Migrate(t.Context()))
	if st, err := s.State(t.Context()); err != nil || st != nil {
		t.Fatalf("before Register: got %+v, %v, want nil", st, err)
	}
	s = owner(t, pg, c)
	listRows(t, s)
	must(t, "finish", s.FinishCatchUp(t.Context()))
	must(t, "save progress", s.SaveProgress(t.Context(), 42))
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	o, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	again, err := open(t, c).Register(t.Context(), "7", 9, o.OID, store.CatchUp)
	must(t, "register again", err)
	if again.Phase != store.Stream || again.Confirmed != 42 || again.SystemID == "7" {
		t.Errorf("second Register: got %+v, want the state as it was", *again)
	}
	pg.Exec(t, `ALTER TABLE outbox_events RENAME TO old; CREATE TABLE outbox_events (LIKE old INCLUDING ALL)`)
	o, err = s.Outbox(t.Context())
	must(t, "read the new outbox", err)
	fresh, err := s.Register(t.Context(), "7", 9, o.OID, store.CatchUp)
	must(t, "register the new table", err)
	if fresh.Source == again.Source || fresh.TableOID != o.OID || fresh.Phase != store.CatchUp || fresh.Confirmed != 0 ||
		!fresh.Dirty {
		t.Errorf("for the new table: got %+v, want another source, catch_up, dirty, nothing confirmed", *fresh)
	}
	found, err := s.Lookup(t.Context(), [][]byte{[]byte(uuid(0))})
	if err != nil || found[0] {
		t.Errorf("an id of the old table: got %v, %v, want not found", found, err)
	}
}

// Break caught: any setting, prepared statement, cursor, lock or temporary table that stays in the session, which a
// transaction pooler would hand to another client, and any call that needs what an earlier one left there. Seen to
// fail with SET for SET LOCAL.
func TestNoCallLeavesAnythingInItsSession(t *testing.T) {
	for _, after := range []string{store.Mark, store.Delete} {
		t.Run(after, func(t *testing.T) { noCallLeavesAnything(t, after) })
	}
}

func noCallLeavesAnything(t *testing.T, after string) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.PoolSize, c.AfterPublish = 1, after
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 5)
	for _, row := range everyMethod(s, after) {
		s.Pool().Reset() // so that the call runs on a connection that has seen nothing
		must(t, row.what, row.do(t.Context()))
		var left string
		must(t, "look at the session", s.Pool().QueryRow(t.Context(),
			`SELECT concat_ws(', ', (SELECT string_agg(name || ' = ' || setting, ', ') FROM pg_settings
 WHERE source = 'session'),
 (SELECT string_agg('prepared ' || name, ', ') FROM pg_prepared_statements),
 (SELECT string_agg('cursor ' || name, ', ') FROM pg_cursors WHERE name <> ''),
 (SELECT string_agg('lock ' || locktype, ', ') FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
 (SELECT string_agg('temporary ' || relname, ', ') FROM pg_class WHERE relnamespace = pg_my_temp_schema()))`).Scan(
			&left))
		if left != "" {
			t.Errorf("%s leaves %s in its session", row.what, left)
		}
	}
}

// calledMethod is one method with arguments.
type calledMethod struct {
	what string
	do   func(ctx context.Context) error
}

// everyMethod calls each method that talks to Postgres, in an order in which each has something to do.
func everyMethod(s *store.Store, after string) []calledMethod {
	barrier := func(ctx context.Context) error { _, err := s.Barrier(ctx, waitLong); return err }
	return append([]calledMethod{
		{"Plan", func(ctx context.Context) error { _, err := s.Plan(ctx); return err }},
		{"Migrate", s.Migrate},
		{"Outbox", func(ctx context.Context) error { _, err := s.Outbox(ctx); return err }},
		{"Register", func(ctx context.Context) error {
			o, err := s.Outbox(ctx)
			if err == nil {
				_, err = s.Register(ctx, "7", 1, o.OID, store.CatchUp)
			}
			return err
		}},
		{"State", func(ctx context.Context) error { _, err := s.State(ctx); return err }},
		{"Memories", func(ctx context.Context) error { _, err := s.Memories(ctx); return err }},
		{"Slot", func(ctx context.Context) error { _, err := s.Slot(ctx); return err }},
		{"CheckPublication", func(ctx context.Context) error { _, err := s.CheckPublication(ctx, "test"); return err }},
		{"CreatePublication", func(ctx context.Context) error { return s.CreatePublication(ctx, "test") }},
		{"CreatePublicationOf", func(ctx context.Context) error {
			return s.CreatePublicationOf(ctx, "test", []store.Named{{Schema: "app", Name: "outbox_events"}})
		}},
		{"Outboxes", func(ctx context.Context) error {
			_, err := s.Outboxes(ctx, outbox.Pattern{Schema: "*", Table: "outbox_events"}, "test")
			return err
		}},
		{"Registered", func(ctx context.Context) error { _, err := s.Registered(ctx); return err }},
		{"States", func(ctx context.Context) error { _, err := s.States(ctx); return err }},
		{"MemoriesOf", func(ctx context.Context) error {
			_, err := s.MemoriesOf(ctx, []store.Named{{OID: 1, Schema: "app", Name: "outbox_events"}})
			return err
		}},
		{"Barrier", barrier},
		{"Walsender", func(ctx context.Context) error { _, err := s.Walsender(ctx, 1); return err }},
		{"OldTransactions", func(ctx context.Context) error { _, err := s.OldTransactions(ctx, time.Hour); return err }},
		{"EmitToken", func(ctx context.Context) error { _, err := s.EmitToken(ctx, "p", "c"); return err }},
		{"CountUnrecorded", func(ctx context.Context) error { _, err := s.CountUnrecorded(ctx, 1); return err }},
		{"SnapshotCatchUp", func(ctx context.Context) error { _, err := s.SnapshotCatchUp(ctx); return err }},
		{"ReusedAside", func(ctx context.Context) error { _, err := s.ReusedAside(ctx, 10); return err }},
		{"ListsReady", s.ListsReady},
		{"CatchUpRows", func(ctx context.Context) error { _, err := s.CatchUpRows(ctx, 0, 10); return err }},
		{"Settle", func(ctx context.Context) error { return s.Settle(ctx, published(2, uuid), nil) }},
		{"Settle of a replay", func(ctx context.Context) error { return s.Settle(ctx, published(2, uuid), nil) }},
		{"Settle of a dead letter", func(ctx context.Context) error { return s.Settle(ctx, nil, []store.Dead{dead(4)}) }},
		{"Lookup", func(ctx context.Context) error { _, err := s.Lookup(ctx, [][]byte{[]byte(uuid(0))}); return err }},
		{"Recognize", func(ctx context.Context) error {
			_, err := s.Recognize(ctx, []store.Sighting{{ID: []byte(uuid(0))}})
			return err
		}},
		{"SetBaseline", func(ctx context.Context) error { _, err := s.SetBaseline(ctx); return err }},
		{"FinishCatchUp", s.FinishCatchUp},
		{"BeginCatchUp", func(ctx context.Context) error { return s.BeginCatchUp(ctx, true) }},
		{"BeginCatchUpSince", func(ctx context.Context) error { _, err := s.BeginCatchUpSince(ctx, 1, true); return err }},
		{"BeginCatchUpOfLost", func(ctx context.Context) error { _, err := s.BeginCatchUpOfLost(ctx); return err }},
		{"CatchUpOf", func(ctx context.Context) error { return s.CatchUpOf(ctx, []int32{7}) }},
		{"NoteLeftOut", s.NoteLeftOut},
		{"NoteBaseline", s.NoteBaseline},
		{"AddTopics", func(ctx context.Context) error { return s.AddTopics(ctx, []string{"t"}) }},
		{"SaveOffsets", func(ctx context.Context) error {
			return s.SaveOffsets(ctx, []store.Offset{{Topic: "t", Partition: 1, Next: 2}})
		}},
		{"Tails", func(ctx context.Context) error { _, err := s.Tails(ctx); return err }},
		{"SaveProgress", func(ctx context.Context) error { return s.SaveProgress(ctx, 1<<62) }},
		{"DeleteStep", func(ctx context.Context) error {
			n, _, err := s.DeleteStep(ctx, 0, 10)
			if err == nil && n == 0 && after == store.Delete {
				err = errors.New("it found nothing to delete")
			}
			return err
		}},
		{"MirrorLag", func(ctx context.Context) error { _, _, err := s.MirrorLag(ctx); return err }},
		{"NextUnmarked", func(ctx context.Context) error { _, err := s.NextUnmarked(ctx, 0); return err }},
		{"MirrorStep", func(ctx context.Context) error { _, _, err := s.MirrorStep(ctx, 10); return err }},
		{"Prunable", func(ctx context.Context) error { _, err := s.Prunable(ctx, 0); return err }},
		{"Deletable", func(ctx context.Context) error { _, err := s.Deletable(ctx, 0); return err }},
		{"DeadPrunable", func(ctx context.Context) error { _, err := s.DeadPrunable(ctx, 0); return err }},
		{"PruneDropped", func(ctx context.Context) error { _, _, err := s.PruneDropped(ctx, 0, 1); return err }},
		{"Prune", func(ctx context.Context) error { _, _, err := s.Prune(ctx, 0, 10); return err }},
		{"NothingToMark", func(ctx context.Context) error { _, err := s.NothingToMark(ctx); return err }},
		{"Park", func(ctx context.Context) error {
			_, err := s.Park(ctx, []store.Parked{parkedAt(5, "k", 0), parkedAt(6, "k", store.NotDue),
				parkedAt(7, "k", store.WhenWell)})
			return err
		}},
		{"ParkedLanes", func(ctx context.Context) error { _, _, err := s.ParkedLanes(ctx); return err }},
		{"ParkedAmong", func(ctx context.Context) error {
			_, err := s.ParkedAmong(ctx, []store.Sighting{{ID: []byte(uuid(5))}})
			return err
		}},
		{"CountParked", func(ctx context.Context) error { _, err := s.CountParked(ctx); return err }},
		{"OldestParked", func(ctx context.Context) error { _, err := s.OldestParked(ctx); return err }},
		{"CountDead", func(ctx context.Context) error { _, err := s.CountDead(ctx); return err }},
		{"WaitingTopics", func(ctx context.Context) error { _, err := s.WaitingTopics(ctx); return err }},
		{"MakeDue", func(ctx context.Context) error { _, err := s.MakeDue(ctx, "t"); return err }},
		{"WakeHeads", s.WakeHeads},
		{"DueLanes", func(ctx context.Context) error { _, _, err := s.DueLanes(ctx, 10, []string{"u"}); return err }},
		{"Portions", func(ctx context.Context) error {
			_, err := s.Portions(ctx, []store.Ask{{Lane: store.Lane{Topic: "t", Key: []byte("k")}}}, 10, 1<<20)
			return err
		}},
		{"RetryLater", func(ctx context.Context) error {
			return s.RetryLater(ctx, []store.Attempt{{ID: []byte(uuid(5)), Attempts: 2, Class: outbox.Transient, Text: "again"}})
		}},
		{"SettleRetried", func(ctx context.Context) error {
			return s.SettleRetried(ctx, []store.Published{{ID: []byte(uuid(6)), Topic: "t", Offset: 9}})
		}},
		{"GiveUp", func(ctx context.Context) error { _, err := s.GiveUp(ctx, dead(7)); return err }},
		{"ShowDead", func(ctx context.Context) error { _, _, err := s.ShowDead(ctx, 0, 10); return err }},
		{"ShowRetried", func(ctx context.Context) error { _, _, err := s.ShowRetried(ctx, 0, 10); return err }},
		{"AuditState", func(ctx context.Context) error { _, err := s.AuditState(ctx); return err }},
		{"Running", func(ctx context.Context) error { _, err := s.Running(ctx); return err }},
		{"UnrecordedSince", func(ctx context.Context) error { _, err := s.UnrecordedSince(ctx, time.Now(), 10); return err }},
		{"UnrecordedIn", func(ctx context.Context) error { _, err := s.UnrecordedIn(ctx, 0, 10, 10); return err }},
		{"LateRows", func(ctx context.Context) error {
			_, err := s.LateRows(ctx, [][]byte{[]byte(uuid(5))}, 10)
			return err
		}},
		{"SaveHorizon", func(ctx context.Context) error { return s.SaveHorizon(ctx, time.Now()) }},
		{"SaveSweep", func(ctx context.Context) error { return s.SaveSweep(ctx, time.Now()) }},
		{"CheckExpressions", s.CheckExpressions},
		{"Clock", func(ctx context.Context) error { _, err := s.Clock(ctx); return err }},
		{"CleanStop", func(ctx context.Context) error { return s.CleanStop(ctx, 7) }},
	}, slices.Concat(requestMethods(s), policyMethods(s), spoolMethods(s))...)
}

// Break caught: a statement that needs more than the documented grants, such as a column that is updated or a lock.
// Seen to fail with DELETE on the outbox not granted, and with the grants on the parked events left out.
func TestEveryCallWorksWithTheDocumentedGrantsOnly(t *testing.T) {
	for _, after := range []string{store.Mark, store.Delete} {
		t.Run(after, func(t *testing.T) { everyCallWorksWithGrants(t, after) })
	}
}

func everyCallWorksWithGrants(t *testing.T, after string) {
	dead, retry := failureSets()
	pg, _, s, _ := withGrants(t, after, dead, retry)
	pg.Exec(t, `INSERT INTO app.outbox_events (id, aggregate_type, event_type) VALUES ('`+uuid(0)+`', 'a', 'e')`)
	for _, row := range everyMethod(s, after) {
		if err := row.do(t.Context()); err != nil {
			t.Errorf("%s as a role with the documented grants: %v", row.what, err)
		}
	}
}

// Seen to fail with DeleteStep and with Park left out of everyMethod.
func TestEveryMethodIsEveryMethod(t *testing.T) {
	// What asks nothing of Postgres, is for tests, is run by the owner of the tables only (Adopt, MakeView), or is tried
	// by the caller of everyMethod: a store cannot be owned twice.
	others := []string{"Close", "Grants", "GrantsSQL", "MissingGrants", "RolesSQL", "Apply", "PublicationSQL",
		"ViewName", "LookupAs", "Of", "Named", "Cover", "EachTable", "EventSource", "FormOf", "Know", "NeedOne", "Table",
		"SettleAs", "Wrap", "ExplainSince", "ExplainIn", "ExplainCatchUp", "ExplainPruneDead", "Pool", "TakeOver", "Adopt",
		"MakeView"}
	listed := everyMethod(new(store.Store), store.Mark)
	for method := range reflect.TypeFor[*store.Store]().Methods() {
		if !slices.Contains(others, method.Name) && !slices.ContainsFunc(listed, func(m calledMethod) bool {
			return m.what == method.Name
		}) {
			t.Errorf("everyMethod does not call %s", method.Name)
		}
	}
}
