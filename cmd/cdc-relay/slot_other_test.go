package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// All databases of a server share the names of slots. Breaks it catches: a command or a start that takes the slot of
// another database for its own, stands by while that one's relay streams, makes tables that no start can use, or
// advises to drop the slot. Written, but not run, to fail before the database was compared first: init exits with 0,
// run stands by forever, config init takes the slot for missing, and adopt and the halt advise to drop it.
func TestSlotOfAnotherDatabaseIsNeverTaken(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	theirs, s := newServices(t, nil), newServices(t, nil)
	cdcRelay(t, theirs.environ, "init").want(t, exitDone, nil, nil)
	slot := theirs.variable("CDC_RELAY_POSTGRES_SLOT")
	file := newFile(t)
	elsewhere := `belongs to database "` + theirs.pg.Database + `"`
	refused := func(t *testing.T, why string) {
		t.Helper()
		for _, c := range []struct {
			args []string
			code int
		}{
			{[]string{"init"}, exitFailed}, {[]string{"init", "--dry-run"}, exitFailed},
			{[]string{"init", "--no-slot"}, exitFailed}, {[]string{"check"}, exitFailed},
			{[]string{"run", "--on-halt", "exit"}, exitFailed}, {[]string{"adopt"}, exitFailed},
			{[]string{"slot", "status"}, exitFailed}, {[]string{"slot", "drop", "--yes"}, exitFailed},
			{[]string{"slot", "advance", "--to", "end", "--yes"}, exitFailed}, {[]string{"config", "init", "--force",
				"--write", file}, exitDone},
		} {
			got := cdcRelay(t, s.environ, append(c.args, "--postgres-slot", slot)...)
			said := got.out + got.errors
			if got.code != c.code || strings.Contains(said, "pg_drop_replication_slot") ||
				strings.Contains(said, "drop the slot") || strings.Contains(said, "slot drop") {
				t.Errorf("%v: got exit code %d, want %d and no advice to drop the slot; it said:\n%s", c.args, got.code, c.code,
					said)
			}
			switch c.args[0] {
			case "adopt": // where relays have recorded nothing, that is said first
			case "config":
				got.want(t, c.code, []string{"a slot of database " + theirs.pg.Database}, nil)
				if text := contentOf(t, file); strings.Contains(text, "slot does not exist") {
					t.Errorf("config init takes the slot for missing:\n%s", text)
				}
			default:
				if !strings.Contains(said, why) {
					t.Errorf("%v: got\n%s\nwant %q in it", c.args, said, why)
				}
			}
		}
	}
	refused(t, elsewhere)
	if made := s.pg.Query(t, "SELECT count(*) FROM pg_class WHERE relname LIKE 'cdc_relay_%'"); made != "0" {
		t.Errorf("tables made for a slot that is another database's: got %s, want none", made)
	}

	r := startRelay(t, theirs.environ) // in use, it is still not ours
	r.awaitStatus(t, `"role": "active"`)
	refused(t, elsewhere)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, r.log)
	}

	// A copy of the other database remembers the other one's slot.
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	own := s.variable("CDC_RELAY_POSTGRES_SLOT")
	for _, table := range []string{"source", "state", "epoch", "offset", "request"} {
		s.pg.Exec(t, "UPDATE cdc_relay_"+table+" SET slot = '"+slot+"'")
	}
	refused(t, elsewhere)
	cdcRelay(t, s.environ, "slot", "drop", "--yes").want(t, exitDone, []string{own}, nil)
	cdcRelay(t, s.environ, "adopt", "--from", slot).want(t, exitDone, nil, nil)
	cdcRelay(t, theirs.environ, "slot", "status").want(t, exitDone, nil, nil)
}
