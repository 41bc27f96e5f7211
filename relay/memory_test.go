package relay_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A relay under another slot does not know what the first has published. Breaks caught: everything published twice by a
// second relay on the same table; one that is refused though a person wants it. Seen to fail with the look at the
// memories left out.
func TestSecondSlotOnTheTableHalts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	first := b.c.Postgres.Slot
	b.c.Postgres.Slot, b.c.Postgres.Publication = harness.Unique(t, "second"), harness.Unique(t, "second")
	second, stopSecond := b.start()
	b.waitHalt(second, relay.HaltSecondSlot, first, "would be the second", "allow_second_slot")
	mustStop(t, stopSecond)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 5)
	if b.confirmed() != "" {
		t.Error("the second slot was made")
	}
	b.c.Postgres.AllowSecondSlot, b.c.Outbox.CatchUp = true, false
	second, _ = b.start()
	b.waitRole(second, relay.RoleActive)
}

// Breaks caught: a relay that begins under a new slot name as if nothing had been published, and one that goes on
// after the adoption with a gap, a duplicate, or a key out of order. Seen to fail without the look at the memories,
// and with a source drawn again.
func TestAdoptedMemoryGoesOnWithoutAGapOrADuplicate(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	mustStop(t, stop)
	b.pg.Exec(t, many(6, 5, 3)) // while no relay runs, and the old server's slot is going to be gone
	b.dropSlot()
	b.pg.Exec(t, `UPDATE cdc_relay_state SET system_id = '7'`) // as after pg_upgrade

	former := b.c.Postgres.Slot
	b.c.Postgres.Slot = harness.Unique(t, "moved")
	r, stop = b.start()
	b.waitHalt(r, relay.HaltSecondSlot, former, "cdc-relay adopt")
	mustStop(t, stop)

	st, err := store.Open(t.Context(), relay.StoreConfig(b.c))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	system, err := replication.Identify(t.Context(), relay.ReplicationConfig(b.c))
	if err != nil {
		t.Fatal(err)
	}
	a, err := st.Adopt(t.Context(), store.Home{SystemID: system.ID, Timeline: system.Timeline})
	if err != nil || a.From.Slot != former || a.From.SystemID != "7" {
		t.Fatalf("adopt: got %+v, %v, want the memory of slot %s on server 7", a, err, former)
	}
	r, _ = b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(11, 5, 3))
	b.waitRecorded(15)
	b.wantNumbers("outbox.event.order", 15)
}
