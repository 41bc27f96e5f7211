//go:build linux

package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// setStandbys sets synchronous_standby_names and has the server read it. While a name is set that no standby has
// for, no commit of the shared server ends; it is reset before the fixture's own cleanup.
func (f *fixture) setStandbys(names string) {
	f.t.Helper()
	f.exec("ALTER SYSTEM SET synchronous_standby_names = '" + strings.ReplaceAll(names, "'", "''") + "'")
	f.exec("SELECT pg_reload_conf()")
}

func (f *fixture) resetStandbys() {
	f.t.Helper()
	f.exec("ALTER SYSTEM RESET synchronous_standby_names")
	f.exec("SELECT pg_reload_conf()")
	f.waitFor("no standby to be waited for", "SELECT current_setting('synchronous_standby_names') = ''")
}

// Whether a stream is named is asked of the server itself: it gives the stream a priority. Breaks it catches: a name in
// quotes, in other letters or behind a number that is not seen, a number or FIRST taken for a name. Seen to fail with
// the case of letters looked at, with quotes left on, and with what is before the parenthesis taken for names.
func TestNamesOfStandbysAreReadAsTheServerReadsThem(t *testing.T) {
	f := newFixture(t)
	f.c.WALSenderTimeout = time.Minute // no standby has that name
	t.Cleanup(f.resetStandbys)
	var l *link
	stream := func(name string) {
		t.Helper()
		if l != nil {
			l.close()
		}
		f.waitFor("the slot to be free", "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '"+f.c.Slot+"'")
		f.c.ApplicationName = name
		var err error
		if l, err = dial(t.Context(), f.c); err == nil {
			err = l.start(t.Context(), f.c)
		}
		if err == nil { // one that has confirmed nothing is not a standby
			err = pglogrepl.SendStandbyStatusUpdate(t.Context(), l.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { l.close() })
	for _, row := range []struct {
		application, names string
		want               bool
	}{
		{"3", "nobody", false},
		{"3", "*", true},
		{"3", "3 (a, b, c)", false},
		{"3", "a, 3", true},
		{"first", "FIRST 2 (a, b)", false},
		{"first", `first 2 (a, "FIRST")`, true},
		{"any", "ANY 1 (a, b)", false},
		{"any", `ANY 1 (a, b, *)`, true},
		{"cdc-relay/stream/s", "cdc, relay, stream, s", false},
		{"cdc-relay/stream/s", `2 (a,"CDC-Relay/Stream/S" )`, true},
		{"cdc-relay/stream/s", `"cdc-relay/stream/s2", "cdc-relay/stream"`, false},
		{"cdc-relay/stream/s", `a, "*"`, true},
		{"a (*)", `"a *", "(*)"`, false},
		{"a (*)", `a, "b, c", "A (*)"`, true},
		{`say "x"`, `"say x", say, "say ""y"""`, false},
		{`say "x"`, "\t\"say \"\"X\"\"\"", true},
		{"a$1", "a, b$1", false},
		{"a$1", "First 1\t(b, A$1)", true},
	} {
		if row.application != f.c.ApplicationName {
			stream(row.application)
		}
		f.setStandbys(row.names)
		f.waitFor(fmt.Sprintf("the server to say of %q whether it names %q: %t", row.names, row.application, row.want),
			fmt.Sprintf("SELECT (sync_priority > 0) = %t FROM pg_stat_replication WHERE pid = %d", row.want, l.conn.PID()))
		if got := NamesStandby(row.names, row.application); got != row.want {
			t.Errorf("%q names %q: got %t, the server says %t", row.names, row.application, got, row.want)
		}
	}
	if NamesStandby("", "x") {
		t.Error("an empty list names x")
	}
}

// Breaks it catches: a stream that is taken though the server would wait for it with each commit; one that stays when
// that is set while it runs; one that is refused when others are named. Seen to fail without the look at the setting,
// and without the level of notices that tells.
func TestStreamIsNoSynchronousStandby(t *testing.T) {
	f := newFixture(t)
	t.Cleanup(f.resetStandbys)
	refused := func(err error) {
		t.Helper()
		e, is := errors.AsType[*SynchronousStandbyError](err)
		if !is || !strings.Contains(e.Error(), f.c.ApplicationName) || strings.HasSuffix(e.Error(), "()") {
			t.Fatalf("got %v, want a SynchronousStandbyError that names %s", err, f.c.ApplicationName)
		}
	}
	f.setStandbys("*")
	f.waitFor("the setting", "SELECT current_setting('synchronous_standby_names') = '*'")
	_, err := Open(t.Context(), f.c)
	refused(err)
	f.setStandbys("nobody")
	f.waitFor("the setting", "SELECT current_setting('synchronous_standby_names') = 'nobody'")
	r := f.open()
	go func() {
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	f.waitFor("the stream", fmt.Sprintf("SELECT state = 'streaming' FROM pg_stat_replication WHERE pid = %d", r.PID))
	f.setStandbys("ANY 1 (nobody, TEST)")
	refused(r.ended(t))
}
