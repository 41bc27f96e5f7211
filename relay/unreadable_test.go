package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A row that the server cannot print, here one that the filter of another table stumbles over. Breaks it catches: a
// stream that is opened again and again without anybody being told; events behind the row that are lost, or out of
// order, when the slot is moved past it. Seen to fail with the count of broken sessions taken out.
func TestUnreadableWALHaltsUntilTheSlotIsMoved(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	if b.pg.Server.Version() < 15 {
		t.Skip("PostgreSQL 14 has no row filters to break")
	}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.pg.Exec(t, "CREATE TABLE unprintable (n int); "+
		"ALTER PUBLICATION "+b.c.Postgres.Publication+" ADD TABLE unprintable WHERE (length(repeat('x', n)) > 0)")
	b.pg.Exec(t, "INSERT INTO unprintable VALUES (2000000000)")
	b.pg.Exec(t, many(6, 5, 3))
	position := b.here()
	b.waitHalt(r, relay.HaltUnreadable, "requested length too large", "unreadable.md")
	b.wantUnconfirmed(position)
	b.pg.Exec(t, many(11, 5, 3))
	b.moveSlotToTheEnd()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(16, 5, 3))
	b.waitRecorded(20)
	b.wantNumbers("outbox.event.order", 20)
	b.wantLate("outbox.event.order", 6, 15)
	mustStop(t, stop)
}

// moveSlotToTheEnd does what "slot advance --to end" does, as often as it takes: a relay that is halted may be trying
// just now.
func (b *bed) moveSlotToTheEnd() {
	b.t.Helper()
	end := b.pg.Query(b.t, "SELECT pg_current_wal_lsn()")
	harness.Eventually(b.t, 30*time.Second, "the slot is moved", func(context.Context) string {
		b.pg.Exec(b.t, fmt.Sprintf(`DO $$ BEGIN PERFORM pg_replication_slot_advance('%s', '%s');
			EXCEPTION WHEN object_in_use THEN NULL; END $$`, b.c.Postgres.Slot, end))
		if b.pg.Query(b.t, fmt.Sprintf("SELECT '%s'::pg_lsn >= '%s'", b.confirmed(), end)) != "true" {
			return "the slot is in use"
		}
		return ""
	})
}
