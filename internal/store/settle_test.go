package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func journal(t testing.TB, pg *harness.PG) string {
	t.Helper()
	return pg.Query(t,
		`SELECT string_agg(concat_ws(' ', right(event_id::text, 4), topic, partition, "offset"), ', ' ORDER BY event_id)
 FROM cdc_relay_journal`)
}

// Breaks caught: a replay that fails as a whole on the unique violation, that changes the first outcome, or that loses
// the ids of the batch that are new.
func TestSettlingAgainChangesNothingAndTakesWhatIsNew(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	must(t, "settle", s.Settle(t.Context(), published(2, uuid), nil))
	again := published(3, uuid)
	again[0].Offset, again[1].Topic = 99, "other"
	must(t, "settle again", s.Settle(t.Context(), again, nil))
	want := "0000 outbox.event.Order 0 0, 0001 outbox.event.Order 1 1, 0002 outbox.event.Order 2 2"
	if got := journal(t, pg); got != want {
		t.Errorf("journal: got %s, want %s", got, want)
	}
	twice := append(published(4, uuid)[3:], published(4, uuid)[3:]...)
	must(t, "settle one id twice in a batch", s.Settle(t.Context(), twice, nil))
	if got := pg.Query(t, `SELECT count(*) FROM cdc_relay_journal`); got != "4" {
		t.Errorf("journal rows: got %s, want 4", got)
	}
}

// Break caught: a batch that conflicts and costs a new connection each time, because it leaves its own in a
// transaction. Seen to fail without the ROLLBACK.
func TestAConflictKeepsTheConnection(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.PoolSize = 1
	s := registered(t, c)
	backend := func() (pid int) {
		must(t, "ask for the backend", s.Pool().QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
		return pid
	}
	before := backend()
	for range 2 {
		must(t, "settle", s.Settle(t.Context(), published(2, uuid), nil))
	}
	if after := backend(); after != before {
		t.Errorf("backend after a conflict: got %d, want %d as before", after, before)
	}
}

// Break caught: a batch that is made in memory from which pgx is still to send the one before, whose session ended.
// Seen to fail, by the race detector, with the memory kept after any outcome.
func TestABatchWhoseSessionEndsKeepsItsMemory(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	must(t, "wrap the connections", s.Wrap(t.Context(), func(c net.Conn) net.Conn {
		return &slowToFail{Conn: c, closed: make(chan struct{})}
	}))
	batch := published(10_000, uuid)
	for range 2 {
		settled := make(chan error)
		go func() { settled <- s.Settle(t.Context(), batch, nil) }()
		pg.Exec(t, `DO $$ BEGIN LOOP
PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND query LIKE '%COPY%' AND state = 'active'
 AND wait_event = 'ClientRead' AND pid <> pg_backend_pid();
EXIT WHEN FOUND;
PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
END LOOP; END $$`)
		if err := <-settled; err == nil {
			t.Fatal("settle in a session that ends: got no error")
		}
	}
}

// slowToFail is a connection that learns only when it is closed that nothing can be sent any more.
type slowToFail struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *slowToFail) Write(b []byte) (int, error) {
	if len(b) < 50_000 { // less than what pgx sends of a large batch at once
		return c.Conn.Write(b)
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *slowToFail) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Breaks caught: an id that gets another event's place when a batch is put in order, and a batch that is not. Seen to
// fail with the rows left as they came, and with the rows in order and their ids as they came.
func TestABatchIsJournaledInTheOrderOfItsIDs(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	batch := published(4, uuid)
	slices.Reverse(batch)
	batch[0].Topic = "a longer topic than the others'"
	must(t, "settle", s.Settle(t.Context(), batch, nil))
	want := "0000 outbox.event.Order 0 0, 0001 outbox.event.Order 1 1, 0002 outbox.event.Order 2 2, 0003 a longer topic " +
		"than the others' 3 3"
	if got := journal(t, pg); got != want {
		t.Errorf("journal: got %s, want %s", got, want)
	}
	for _, query := range []string{
		`SELECT string_agg(right(event_id::text, 1), '' ORDER BY ctid) FROM cdc_relay_journal`,
		`SELECT string_agg(right(id::text, 1), '' ORDER BY place)
 FROM cdc_relay_journal_batch, unnest(ids) WITH ORDINALITY AS i(id, place)`,
	} {
		if got := pg.Query(t, query); got != "0123" {
			t.Errorf("%s: got %s, want 0123", query, got)
		}
	}
}

// Break caught: a relay that is frozen within a transaction, and holds up VACUUM of the whole database until it is not.
// Seen to fail without the limit.
func TestSettleLimitsHowLongItsTransactionMayBeIdle(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	pg.Exec(t, `CREATE TABLE seen (setting text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO public.seen VALUES (current_setting('idle_in_transaction_session_timeout')); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON cdc_relay_journal FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	if got := pg.Query(t, `SELECT setting FROM seen`); got != "10s" {
		t.Errorf("idle_in_transaction_session_timeout in Settle: got %s, want 10s", got)
	}
}

// Break caught: a look-up that forgets one of the three tables, or that answers for another source.
func TestLookupKnowsJournalParkedAndDeadLettersOfThisSourceOnly(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), []store.Dead{dead(1)}))
	pg.Exec(t, fmt.Sprintf(
		`INSERT INTO cdc_relay_parked (source, event_id, topic, epoch, from_stream, position_order, position_index,
 error_class)
SELECT source, '%s', 't', 1, true, 1, 0, 'transient' FROM cdc_relay_state`, uuid(2)))
	pg.Exec(t, fmt.Sprintf(
		`INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset") VALUES (999, '%s', 't', 0, 0)`,
		uuid(4)))
	ids := [][]byte{[]byte(uuid(4)), []byte(uuid(2)), []byte(uuid(3)), []byte(uuid(1)), []byte(uuid(0)), []byte(uuid(0))}
	got, err := s.Lookup(t.Context(), ids)
	want := []bool{false, true, false, true, true, true}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("other source, parked, unknown, dead, journaled, the same: got %v, %v, want %v", got, err, want)
	}
	if _, err := s.Lookup(t.Context(), [][]byte{[]byte("x")}); err == nil || !strings.Contains(err.Error(), "not a uuid") {
		t.Errorf("look-up of a malformed id: got %v, want an error that says so", err)
	}
}

// Break caught: an error of the commit itself, which arrives after the statements' success, taken for success: the WAL
// would be confirmed past events that are not journaled.
func TestSettleReportsAFailedCommit(t *testing.T) {
	for _, path := range []string{"copy", "conflict", "dead letter"} {
		t.Run(path, func(t *testing.T) {
			pg := harness.Postgres(t)
			s := owner(t, pg, usual(t, pg))
			var letters []store.Dead
			switch path {
			case "conflict":
				must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
			case "dead letter":
				letters = []store.Dead{dead(9)}
			}
			pg.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused at commit'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON cdc_relay_journal DEFERRABLE INITIALLY DEFERRED
 FOR EACH ROW EXECUTE FUNCTION refuse()`)
			before := pg.Query(t, `SELECT count(*) FROM cdc_relay_journal`)
			err := s.Settle(t.Context(), published(2, uuid), letters)
			if err == nil || !strings.Contains(err.Error(), "refused at commit") {
				t.Errorf("settle: got %v, want the commit's error", err)
			}
			if got := pg.Query(t, `SELECT count(*) FROM cdc_relay_journal`); got != before {
				t.Errorf("journal rows: got %s, want %s", got, before)
			}
		})
	}
}

// Break caught: a transaction that is lost by a crash of the server although Settle returned (synchronous_commit left
// at a default of off), or lowered from remote_apply. Seen to fail with commits that do not wait.
func TestSettleWaitsForTheDiskWhateverTheDefault(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `CREATE TABLE seen (what text,
 setting text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO public.seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON cdc_relay_journal FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT ON outbox_events_dlq FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	for _, row := range []struct{ byDefault, want string }{{"off", "on"}, {"local", "on"}, {"remote_write", "on"},
		{"on", "on"}, {"remote_apply", "remote_apply"}} {
		pg.Exec(t, fmt.Sprintf(
			`ALTER DATABASE %s SET synchronous_commit = %s; TRUNCATE seen, cdc_relay_journal, outbox_events_dlq`, pg.Database,
			row.byDefault))
		s.Pool().Reset()
		letters := []store.Dead{dead(9)}
		must(t, "settle by COPY", s.Settle(t.Context(), published(1, uuid), nil))
		must(t, "settle a replay", s.Settle(t.Context(), published(2, uuid), nil))
		must(t, "settle a dead letter", s.Settle(t.Context(), nil, letters))
		if got := pg.Query(t, `SELECT string_agg(DISTINCT setting, ',') || ' ' || count(*) FROM seen`); got != row.want+" 3" {
			t.Errorf("synchronous_commit in Settle with the default %s: got %s, want %s", row.byDefault, got, row.want)
		}
	}
}

// Break caught: a Settle that touches the outbox, and stands in the queue of a migration's lock.
func TestSettleDoesNotWaitForALockOnTheOutbox(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	must(t, "settle for the mirror", s.Settle(t.Context(), published(1, uuid), nil))
	harness.Eventually(t, waitLong, "older transactions of other tests end", func(context.Context) string {
		return pg.Query(t,
			`SELECT min('not yet') FROM cdc_relay_journal_batch WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())`)
	})
	holdLock(t, pg, "LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	letters := []store.Dead{dead(9)}
	must(t, "settle", s.Settle(ctx, published(10, uuid), nil))
	must(t, "settle with a dead letter", s.Settle(ctx, published(11, uuid), letters))
	_, err := s.Lookup(ctx, [][]byte{[]byte(uuid(0))})
	must(t, "look up", err)
	_, err = s.Outbox(ctx)
	must(t, "read the outbox's shape", err)
	start := time.Now()
	if _, _, err := s.MirrorStep(ctx, 10); !store.IsTransient(err) || time.Since(start) > 10*time.Second {
		t.Errorf("mirror under a lock of the outbox: got %v after %v, want a transient error at once", err, time.Since(start))
	}
}

// Break caught: a settle that waits for a lock on the journal forever.
func TestSettleGivesUpOnALockOfTheJournalAsTransient(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	holdLock(t, pg, "LOCK TABLE cdc_relay_journal IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	err := s.Settle(ctx, published(1, uuid), nil)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "55P03" || !store.IsTransient(err) {
		t.Errorf("settle while the journal is locked: got %v, want a lock time-out", err)
	}
}

// holdLock opens a transaction that lives to the test's end.
func holdLock(t testing.TB, pg *harness.PG, lock string) {
	t.Helper()
	conn := pg.Connect(t)
	exec(t, conn, "BEGIN; "+lock)
}

// Breaks caught: a dead letter whose values are not those of the event, or one that a strange value keeps out.
func TestDeadLetterKeepsTheEventAsItWas(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload bytea,
 headers json, created_at timestamp, extra1 text, extra2 int, published_at timestamptz)`)
	c := usual(t, pg)
	c.Columns.Headers, c.Columns.Extra = "headers", []string{"extra1", "extra2"}
	s := owner(t, pg, c)
	full := outbox.Event{ID: []byte(uuid(1)), AggregateType: []byte("Order"), AggregateID: []byte("o-1"),
		EventType: []byte("Made"),
		Payload:   []byte{0, 0xff, '\\'}, Headers: []byte(`{"b": "1",  "a": "2"}`),
		CreatedAt: []byte("2026-01-02 03:04:05.678"),
		Extra:     [][]byte{[]byte(`q"'`), nil}, Position: outbox.Position{Epoch: 3, Order: 0x1_0000_00AB, Index: 7}}
	empty := outbox.Event{ID: []byte(uuid(2)), Position: outbox.Position{Epoch: 4, Table: true, Order: 12}}
	must(t, "settle", s.Settle(t.Context(), nil, []store.Dead{
		{Event: &full, Topic: "orders", Key: []byte{1, 0}, Partition: 3, Attempts: 5, Class: outbox.Transient, Code: "CODE",
			Text: "why\x00 \xff" + strings.Repeat("x", 10_000)},
		{Event: &empty, Topic: "orders", Partition: -1, Attempts: 1, Class: outbox.Permanent, Code: "C", Text: "t"}}))
	row := `SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload::text, headers,
 created_at AT TIME ZONE 'UTC', extra, topic, key,
 coalesce(partition, -9), position, epoch, from_stream, position_order, position_index, attempts, error_class,
 error_code, left(last_error, 7), length(last_error) < 5000)
FROM outbox_events_dlq WHERE original_id = '%s'`
	want := `Order|o-1|Made|\x00ff5c|{"b": "1",  "a": "2"}|2026-01-02 03:04:05.678` +
		`|{"extra1": "q\"'", "extra2": null}|orders|\x0100|3|1/AB/7|3|t|4294967467|7|5|transient|CODE|why? ?x|t`
	if got := pg.Query(t, fmt.Sprintf(row, uuid(1))); got != want {
		t.Errorf("dead letter:\n got %s\nwant %s", got, want)
	}
	want = `{"extra1": null, "extra2": null}|orders|-9|table/4/12|4|f|12|0|1|permanent|C|t|t`
	if got := pg.Query(t, fmt.Sprintf(strings.ReplaceAll(row, "extra,", "'{\"extra1\": null, \"extra2\": null}',"),
		uuid(2))); got != want {
		t.Errorf("dead letter of NULLs:\n got %s\nwant %s", got, want)
	}
}

// Breaks caught: a write without the fence, or one whose other half commits.
func TestWritersOfAnOlderEpochAreRefused(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	old := registered(t, c)
	conn := takeOver(t, pg, c, old)
	_, err := old.SnapshotCatchUp(t.Context())
	must(t, "list the rows to catch up", err)
	must(t, "leave the slot", conn.Close(t.Context()))
	next := open(t, c)
	takeOver(t, pg, c, next)

	letters := []store.Dead{dead(9)}
	for what, write := range map[string]func() error{
		"dead letter":   func() error { return old.Settle(t.Context(), published(1, uuid), letters) },
		"progress":      func() error { return old.SaveProgress(t.Context(), 77) },
		"clean stop":    func() error { return old.CleanStop(t.Context(), 77) },
		"topics":        func() error { return old.AddTopics(t.Context(), []string{"t"}) },
		"offsets":       func() error { return old.SaveOffsets(t.Context(), []store.Offset{{Topic: "t"}}) },
		"finish":        func() error { return old.FinishCatchUp(t.Context()) },
		"catch-up list": func() error { _, err := old.SnapshotCatchUp(t.Context()); return err },
	} {
		err := write()
		if store.IsTransient(err) { // the takeover ended the session that the pool had
			err = write()
		}
		if !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s after a takeover by another: got %v, want ErrFenced", what, err)
		}
	}
	st, err := next.State(t.Context())
	must(t, "read the state", err)
	if st.Confirmed != 0 || !st.Dirty || st.Phase != store.CatchUp || st.Epoch != 2 {
		t.Errorf("state: got %+v, want nothing confirmed, dirty, catch_up, epoch 2", *st)
	}
	if got := journal(t, pg); got != "" {
		t.Errorf("journal row beside a fenced dead letter: got %s, want none", got)
	}
	must(t, "journal rows alone need no fence", old.Settle(t.Context(), published(1, uuid), nil))
	must(t, "the owner saves progress", next.SaveProgress(t.Context(), 78))
}
