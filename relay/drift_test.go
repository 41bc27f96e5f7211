package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a missing publication taken for nothing to do: everything committed in the meantime would be
// confirmed; the server's refusal afterwards taken for a broken connection, which the relay would open again forever.
func TestPublicationDroppedWhileRunningHalts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.pg.Exec(t, "DROP PUBLICATION "+b.c.Postgres.Publication)
	b.pg.Exec(t, many(6, 5, 3))
	position := b.here()
	b.waitHalt(r, relay.HaltPublication, b.c.Postgres.Publication)
	b.wantUnconfirmed(position)
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "5" {
		t.Errorf("journal: got %s rows, want 5", n)
	}
	// Made again it is younger than the WAL that is left: the server refuses forever, so a new slot is made, table first.
	b.pg.Exec(t, "CREATE PUBLICATION "+b.c.Postgres.Publication+" FOR TABLE outbox_events WITH (publish = 'insert')")
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(11, 5, 3))
	b.waitRecorded(15)
	b.wantNumbers("outbox.event.order", 15)
	if n := metric(t, r, "cdc_slot_recreations_total"); n != 1 {
		t.Errorf("cdc_slot_recreations_total: got %v, want 1", n)
	}
}

// Break it catches: a slot dropped and made again though a person shall decide.
func TestPublicationMadeAnewHaltsWhenAPersonDecides(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Postgres.OnSlotLost = "halt"
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, "DROP PUBLICATION "+b.c.Postgres.Publication)
	b.pg.Exec(t, many(1, 5, 3))
	position := b.here()
	b.waitHalt(r, relay.HaltPublication, b.c.Postgres.Publication)
	b.pg.Exec(t, "CREATE PUBLICATION "+b.c.Postgres.Publication+" FOR TABLE outbox_events WITH (publish = 'insert')")
	harness.Eventually(t, 30*time.Second, "halted by the stream", func(context.Context) string {
		if st := r.Status(); st.Halt == nil || st.Halt.Code != relay.HaltPublication ||
			!strings.Contains(st.Halt.Reason, "at the slot's position") {
			return fmt.Sprintf("%s, halt %+v, last error %s", st.Role, st.Halt, st.LastError)
		}
		return ""
	})
	b.wantUnconfirmed(position)
}

// Nothing tells the stream that its table left the publication, or that another table has its name now. Breaks it
// catches: a relay that goes on confirming while the rows of the outbox are not in the stream, one that stays halted
// after the repair, and one that leaves what was left out to the reconciler. Seen failing with a halt that is not
// noted in the state.
func TestDriftWhileRunningHalts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Drift.Interval = config.Duration(200 * time.Millisecond)
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.pg.Exec(t, "ALTER PUBLICATION "+b.c.Postgres.Publication+" DROP TABLE outbox_events")
	b.pg.Exec(t, many(6, 5, 3)) // not in the stream
	b.waitHalt(r, relay.HaltPublication, "not in it")
	b.pg.Exec(t, many(11, 5, 3))
	b.pg.Exec(t, strings.TrimPrefix(r.Status().Halt.Remedy, "run ")+many(16, 5, 3)) // before the relay looks again
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(20)
	b.wantNumbers("outbox.event.order", 20) // what was left out comes before what was not
	b.wantLate("outbox.event.order", 6, 20)
	b.pg.Exec(t, many(21, 5, 3))
	b.waitRecorded(25)
	b.wantLate("outbox.event.order", 6, 20)

	b.pg.Exec(t, "BEGIN; ALTER TABLE outbox_events RENAME TO old; CREATE TABLE outbox_events (LIKE old INCLUDING ALL); "+
		"COMMIT")
	b.waitHalt(r, relay.HaltOtherTable, "outbox_events")
}

// A table inherits from the outbox: its rows are rows of the outbox to a query, and not to the stream. Breaks it
// catches: a relay that begins, or goes on, and publishes them behind newer ones of their keys, or takes the
// publication for the reason. Seen to fail without a look at what inherits.
func TestTableThatInheritsFromTheOutboxHalts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Drift.Interval = config.Duration(100 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, "CREATE TABLE outbox_events_eu (region text, PRIMARY KEY (id)) INHERITS (outbox_events)")
	b.waitHalt(r, relay.HaltSetup, "public.outbox_events_eu", "NO INHERIT")
	mustStop(t, stop)
	r, stop = b.start()
	b.waitHalt(r, relay.HaltSetup, "public.outbox_events_eu", "NO INHERIT")
	b.pg.Exec(t, "ALTER TABLE outbox_events_eu NO INHERIT outbox_events;"+many(1, 5, 3))
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(5)
	mustStop(t, stop)
}

// Another table takes the outbox's name, and the reconciler looks before the look for drift does. Break it catches:
// rows of that table published as missed by the stream, and once more when someone moves them back.
func TestReconcilerPublishesNothingOfAnotherTable(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.pg.Exec(t, "BEGIN; ALTER TABLE outbox_events RENAME TO old; CREATE TABLE outbox_events (LIKE old INCLUDING ALL);"+
		many(6, 5, 3)+"COMMIT")
	b.waitHalt(r, relay.HaltOtherTable, "outbox_events")
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 5)
}

// Another table with rows of the same ids takes the outbox's name, and what is to be marked comes before the look for
// drift. Breaks it catches: marks in that table, and a relay that goes on without marks until the look.
func TestMirrorMarksNothingOfAnotherTable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Drift.Interval = config.Duration(time.Hour)
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	const swap = "BEGIN; ALTER TABLE outbox_events RENAME TO old; ALTER TABLE other RENAME TO outbox_events;"
	b.pg.Exec(t, "CREATE TABLE other (LIKE outbox_events INCLUDING ALL);"+
		strings.ReplaceAll(many(1, 5, 3), "outbox_events", "other"))
	b.pg.Exec(t, swap+" INSERT INTO old OVERRIDING SYSTEM VALUE SELECT * FROM outbox_events; COMMIT")
	b.waitHalt(r, relay.HaltOtherTable, "outbox_events")
	if n := b.pg.Query(t, "SELECT count(published_at) FROM outbox_events"); n != "0" {
		t.Errorf("marked in another table: %s rows", n)
	}
	b.pg.Exec(t, "BEGIN; ALTER TABLE outbox_events RENAME TO other; ALTER TABLE old RENAME TO outbox_events; COMMIT;"+
		many(6, 5, 3))
	b.waitRecorded(10)
	harness.Eventually(t, 30*time.Second, "all rows marked", func(context.Context) string {
		if n := b.pg.Query(t, "SELECT count(published_at) FROM outbox_events"); n != "10" {
			return n + " of 10"
		}
		return ""
	})
	b.wantNumbers("outbox.event.order", 10)
}
