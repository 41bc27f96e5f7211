//go:build linux

package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// server is the real Postgres that all tests of the package share; nil when this machine has none.
var server *embedded.Postgres

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	var err error
	server, err = embedded.StartPostgres(ctx, embedded.PostgresConfig{
		Version: os.Getenv("CDC_RELAY_TEST_POSTGRES_VERSION"), Above: os.Getenv("CDC_RELAY_TEST_DATA"),
	})
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "replication: NO POSTGRES, its tests are skipped (in CI they fail): %v\n", err)
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
	}
	code := m.Run()
	if server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop Postgres:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var slots atomic.Int32

// fixture is a slot of its own with a publication of the table "box".
type fixture struct {
	t    *testing.T
	c    Config
	conn *pgx.Conn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if server == nil {
		t.Skip("no Postgres on this machine")
	}
	f := &fixture{t: t, c: Config{
		URL: server.URL("postgres"), Slot: fmt.Sprintf("s%d", slots.Add(1)), ApplicationName: "test",
		StatusInterval: 250 * time.Millisecond, WALSenderTimeout: 2 * time.Second,
	}}
	f.c.Publication = "pub \"of\" " + f.c.Slot // quoting matters
	var err error
	if f.conn, err = pgx.Connect(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		f.waitFor("the slot to be free", "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '"+f.c.Slot+
			"' UNION ALL SELECT true LIMIT 1")
		_,
			_ = f.conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1",
			f.c.Slot)
		_, _ = f.conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+pgx.Identifier{f.c.Publication}.Sanitize())
		_ = f.conn.Close(ctx)
	})
	f.exec("CREATE TABLE IF NOT EXISTS box (id int, body text)")
	f.exec("CREATE PUBLICATION " + pgx.Identifier{f.c.Publication}.Sanitize() + " FOR TABLE box WITH (publish = 'insert')")
	if _, err := CreateSlot(t.Context(), f.c); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) exec(sql string) {
	f.t.Helper()
	if _, err := f.conn.Exec(context.Background(), sql); err != nil {
		f.t.Fatal(err)
	}
}

// waitFor polls a query that yields one boolean; the server's views have no notification.
func (f *fixture) waitFor(what, sql string) {
	f.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		var ok bool
		err := f.conn.QueryRow(context.Background(), sql).Scan(&ok)
		if err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("waited in vain for %s (last error %v)", what, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// running is a session whose Run goes on in the background.
type running struct {
	*Session
	confirmed atomic.Uint64
	stop      context.CancelFunc
	end       chan error
}

func (f *fixture) open() *running {
	f.t.Helper()
	s, err := Open(f.t.Context(), f.c)
	if err != nil {
		f.t.Fatal(err)
	}
	r := &running{Session: s, end: make(chan error, 1)}
	r.confirmed.Store(uint64(s.Confirmed))
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	f.t.Cleanup(cancel) // after a failure, before the slot is dropped
	go func() {
		r.end <- s.Run(ctx, func() outbox.LSN { return outbox.LSN(r.confirmed.Load()) })
	}()
	return r
}

// confirmAll takes everything in, as if it were settled at once, until the count of inserts is reached.
func (r *running) confirmAll(t *testing.T, inserts int) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for inserts > 0 {
		select {
		case b, ok := <-r.Batches():
			if !ok {
				t.Fatalf("stream ended: %v", r.ended(t))
			}
			for _, m := range b.Messages {
				if !m.Keepalive && m.Data[0] == 'I' {
					inserts--
				}
			}
			b.Recycle(true)
		case <-deadline:
			t.Fatalf("%d inserts did not come", inserts)
		}
	}
}

func (r *running) finish(t *testing.T) {
	t.Helper()
	r.stop()
	go func() {
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	if err := r.ended(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v, want the context's error", err)
	}
}

// ended returns Run's result. A session that does not end fails its own test: a package that hangs says nothing.
func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.end:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("Run has not returned after 2 min")
		return nil
	}
}

// Fails when bytes between the frontend and the frame reader are lost, or batches are handed over out of order.
func TestStreamDeliversEveryInsertInOrder(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO box SELECT i, repeat('x', 10) FROM generate_series(1, 3000) i")
	r := f.open()
	f.exec("INSERT INTO box SELECT i, repeat('y', 300) FROM generate_series(3001, 6000) i")
	f.exec("INSERT INTO box VALUES (6001, repeat('z', 3000000))")
	next := 1
	for next <= 6001 {
		b, ok := <-r.Batches()
		if !ok {
			t.Fatalf("stream ended: %v", r.ended(t))
		}
		for _, m := range b.Messages {
			if m.Keepalive || m.Data[0] != 'I' {
				continue
			}
			if want := fmt.Sprintf("\x00\x02t\x00\x00\x00%c%d", len(fmt.Sprint(next)),
				next); !strings.Contains(string(m.Data[:min(len(m.Data), 32)]), want) {
				t.Fatalf("insert %d: got %q", next, m.Data[:min(len(m.Data), 40)])
			}
			next++
		}
		b.Recycle(true)
	}
	r.finish(t)
}

// Fails without status while blocked in handOver: the walsender gives up after its time-out of 2 s.
func TestBackpressureKeepsTheConnectionAlive(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	f.exec("INSERT INTO box SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
	first := <-r.Batches()
	<-time.After(3 * f.c.WALSenderTimeout) // the point of the test: there is no read for longer than the time-out
	count := 0
	for _, m := range first.Messages {
		if !m.Keepalive && m.Data[0] == 'I' {
			count++
		}
	}
	r.confirmAll(t, 20000-count)
	r.finish(t)
}

// Fails when the timer's status is left out: the server would end an idle stream, or the client take it for dead.
func TestIdleStreamOutlivesTheTimeout(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	select {
	case err := <-r.end:
		t.Fatalf("an idle stream ended: %v", err)
	case <-time.After(3 * f.c.WALSenderTimeout):
	}
	r.stop()
	<-drained
	if err := r.ended(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v, want the context's error", err)
	}
}

// Fails when leave does not send the last status, or does not wait for the server's end of the stream.
func TestStopConfirmsAndFreesTheSlot(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	f.exec("INSERT INTO box VALUES (1, 'x')")
	r.confirmAll(t, 1)
	at := r.Received() // once: it grows
	r.confirmed.Store(uint64(at))
	r.finish(t)
	var free, confirmed bool
	err := f.conn.QueryRow(t.Context(), "SELECT NOT active, confirmed_flush_lsn >= $2::text::pg_lsn FROM "+
		"pg_replication_slots WHERE slot_name = $1", f.c.Slot, at.String()).Scan(&free, &confirmed)
	if err != nil || !free || !confirmed {
		t.Errorf("after Run returned: free %t, confirmed %t, %v; want the slot free and %s confirmed", free,
			confirmed, err, at)
	}
}

// Fails when progress is sent only by the timer: the interval here is far longer than the test waits.
func TestProgressIsToldBeforeTheTimer(t *testing.T) {
	f := newFixture(t)
	f.c.StatusInterval, f.c.WALSenderTimeout = 15*time.Second, time.Minute
	r := f.open()
	f.exec("INSERT INTO box VALUES (1, 'x')")
	r.confirmAll(t, 1)
	at := r.Received()
	begun := time.Now()
	go func() {
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	r.confirmed.Store(uint64(at))
	f.waitFor("the confirmed position", fmt.Sprintf("SELECT confirmed_flush_lsn >= '%s' FROM pg_replication_slots WHERE "+
		"slot_name = '%s'", at, f.c.Slot))
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("confirming took %v, want well below the status interval of %v", took, f.c.StatusInterval)
	}
	r.stop()
	_ = r.ended(t)
}

// Fails when the position is not asserted against what was received.
func TestConfirmingBeyondWhatWasReceivedEndsTheSession(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	r.confirmed.Store(uint64(r.Confirmed) + 1<<40)
	if _, ok := <-r.Batches(); ok {
		for range r.Batches() {
		}
	}
	if err := r.ended(t); err == nil || !strings.Contains(err.Error(), "assert") {
		t.Errorf("got %v, want a failed assertion", err)
	}
}

// Fails when SQLSTATE 55006 is not recognised, or a missing slot is not.
func TestBusyAndMissingSlotsAreTold(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	_, err := Open(t.Context(), f.c)
	if busy, ok := errors.AsType[*SlotBusyError](err); !ok || busy.PID != r.PID {
		t.Errorf("second session: got %v, want a SlotBusyError of backend %d", err, r.PID)
	}
	r.finish(t)
	missing := f.c
	missing.Slot = "no_such_slot"
	if _, err = Open(t.Context(), missing); !isA[*SlotMissingError](err) {
		t.Errorf("missing slot: got %v, want a SlotMissingError", err)
	}
	bad := f.c
	bad.Slot = "x; DROP"
	if _, err = Open(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "slot name") {
		t.Errorf("bad slot name: got %v, want it refused before a connect", err)
	}
}

// Break it catches: a slot that stays forever, because its walsender had not ended yet. Seen to fail without the wait.
func TestDropWaitsUntilTheSlotIsFree(t *testing.T) {
	f := newFixture(t)
	r := f.open()
	dropped := make(chan error, 1)
	go func() { dropped <- DropSlotWhenFree(context.Background(), f.c) }()
	f.waitFor("the drop to wait", "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'ReplicationSlotDrop')")
	r.finish(t)
	if err := <-dropped; err != nil {
		t.Error(err)
	}
	f.waitFor("the slot to be gone", "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '"+
		f.c.Slot+"')")
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Fails when a dropped publication is an error like any other: the relay must halt, not retry.
func TestMissingPublicationIsTold(t *testing.T) {
	f := newFixture(t)
	f.exec("DROP PUBLICATION " + pgx.Identifier{f.c.Publication}.Sanitize())
	r := f.open()
	f.exec("INSERT INTO box VALUES (1, 'x')")
	for b := range r.Batches() {
		b.Recycle(true)
	}
	if err := r.ended(t); !isA[*PublicationMissingError](err) {
		t.Errorf("got %v, want a PublicationMissingError", err)
	}
}
