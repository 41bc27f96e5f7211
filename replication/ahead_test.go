//go:build linux

package replication

import (
	"context"
	"errors"
	"testing"
)

// dialed waits until the connection stands; pid is the server's name for it.
func (f *fixture) dialed() (pid uint32) {
	f.t.Helper()
	f.c.ApplicationName = "ahead of " + f.c.Slot
	f.c.Ahead = Dial(f.t.Context(), f.c)
	f.t.Cleanup(f.c.Ahead.Close)
	<-f.c.Ahead.done
	if f.c.Ahead.err != nil {
		f.t.Fatal(f.c.Ahead.err)
	}
	return f.c.Ahead.link.conn.PID()
}

// connections is a question for waitFor: whether so many are there.
func (f *fixture) connections(n string) string {
	return "SELECT count(*) = " + n + " FROM pg_stat_activity WHERE application_name = '" + f.c.ApplicationName + "'"
}

// Breaks it catches: a stream that leaves the connection made ahead and makes its own; one that is ended with it. Seen
// to fail with an Open that connects in any case, and with a Close that does not know of the stream.
func TestAStreamBeginsOnTheConnectionMadeAhead(t *testing.T) {
	f := newFixture(t)
	pid := f.dialed()
	r := f.open()
	f.c.Ahead.Close()
	if r.PID != int64(pid) {
		t.Errorf("the stream is on backend %d, want that of the connection made ahead, %d", r.PID, pid)
	}
	f.exec("INSERT INTO box VALUES (1, 'one')")
	r.confirmAll(t, 1)
	f.waitFor("one connection", f.connections("1"))
	r.finish(t)
}

// Break it catches: a start that fails because of what it did to be quick. Seen to fail with the error returned.
func TestAStreamBeginsThoughTheConnectionMadeAheadHasEnded(t *testing.T) {
	f := newFixture(t)
	pid := f.dialed()
	if _, err := f.conn.Exec(t.Context(), "SELECT pg_terminate_backend($1, 5000)", pid); err != nil {
		t.Fatal(err)
	}
	r := f.open()
	f.exec("INSERT INTO box VALUES (1, 'one')")
	r.confirmAll(t, 1)
	r.finish(t)
}

// Breaks it catches: a connection, or a goroutine of it (TestMain looks), that stays when the stream is not wanted in
// the end, at whatever moment. Seen to fail with a Close that only cancels.
func TestAConnectionMadeAheadIsGivenUp(t *testing.T) {
	f := newFixture(t)
	f.dialed()
	f.c.Ahead.Close()
	f.waitFor("none after Close", f.connections("0"))

	Dial(t.Context(), f.c).Close() // wherever it is
	f.waitFor("none after a Close at once", f.connections("0"))

	f.dialed()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Open(over, f.c); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v and error %v of a context that is over, want its error", s, err)
	}
	f.c.Ahead.Close()
	f.waitFor("none after an Open that was not waited for", f.connections("0"))

	f.dialed()
	c := f.c
	c.Slot = "no_such_slot"
	if _, err := Open(t.Context(), c); err == nil {
		t.Fatal("a slot that does not exist was opened")
	}
	f.c.Ahead.Close()
	f.waitFor("none after an Open that failed", f.connections("0"))
}
