package relay_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
)

// A halt prints SQL: in its remedy, or for what it found. Breaks caught: a statement that Postgres refuses as it is
// printed, or that does not end the halt.
func TestPastedStatementsOfHaltsEndThem(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	mustStop(t, stop)
	statement := regexp.MustCompile(`(?:ALTER (?:TABLE|PUBLICATION)|CREATE PUBLICATION|DROP RULE) [^;\n]*`)
	for _, c := range []struct{ code, broken, want string }{
		{relay.HaltPublication, `ALTER PUBLICATION "%p" DROP TABLE outbox_events`, "ADD TABLE"},
		{relay.HaltPublication, `ALTER PUBLICATION "%p" SET (publish = 'update')`, "publish = 'insert'"},
		{relay.HaltPublication, `ALTER PUBLICATION "%p" SET TABLE outbox_events (id, payload)`, "SET TABLE"},
		{relay.HaltColumn, `ALTER TABLE outbox_events RENAME COLUMN payload TO body`, "ADD COLUMN"},
		{relay.HaltSetup, `CREATE TABLE child () INHERITS (outbox_events)`, "NO INHERIT"},
	} {
		b.pg.Exec(t, strings.ReplaceAll(c.broken, "%p", b.c.Postgres.Publication))
		r, stop := b.start()
		b.waitHalt(r, c.code)
		halt := r.Status().Halt
		mustStop(t, stop)
		pasted := ""
		for _, text := range statement.FindAllString(halt.Reason+"\n"+halt.Remedy, -1) {
			if !strings.Contains(text, "<") {
				text, _, _ = strings.Cut(text, " (as ")
				b.pg.Exec(t, text)
				pasted += text + "\n"
			}
		}
		if !strings.Contains(pasted, c.want) {
			t.Errorf("%s: got %q of\n%s\n%s\nwant %q", c.broken, pasted, halt.Reason, halt.Remedy, c.want)
		}
		r, stop = b.start()
		b.waitRole(r, relay.RoleActive)
		mustStop(t, stop)
	}
}
