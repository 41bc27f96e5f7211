package bootstrap

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// checkState compares what the relay remembers with what is there.
func (s Setup) checkState(ctx context.Context, f *found) error {
	state, table, slot := f.state, f.table, f.slot
	switch {
	case state != nil && state.TableOID != table.OID:
		return s.otherTable(ctx, state, table)
	case slot.Exists && !s.Config.Outbox.CatchUp && (state == nil || state.Phase == store.CatchUp && !state.Baseline):
		return &halt.Error{Code: halt.Baseline,
			Reason: fmt.Sprintf("outbox.catch_up is false and the slot %q was made before the relay could note which rows "+
				"are older than it", s.Config.Postgres.Slot),
			Risk:   "rows that the slot holds could be taken for older ones and never be published",
			Remedy: s.baselineRemedy(state)}
	}
	return nil
}

// baselineRemedy advises to drop the slot only where the state says that a relay with this configuration made it.
func (s Setup) baselineRemedy(state *store.State) string {
	if state == nil {
		return "set postgres.slot to a name that no slot has, and the relay creates it; or set outbox.catch_up: true"
	}
	return "let the relay create the slot again (cdc-relay slot drop --postgres-slot " + s.Config.Postgres.Slot +
		" shows whose it is and asks), or set outbox.catch_up: true"
}

// CheckSlot returns a *halt.Error for a slot of that name that is another's. It makes nothing.
func (s Setup) CheckSlot(ctx context.Context) error {
	slot, err := s.Store.Slot(ctx)
	if err != nil {
		return explainStore(err)
	}
	return s.mismatch(slot)
}

// mismatch is the halt for a slot of another database, or of another kind: nothing else of it concerns this relay,
// least of all who streams from it.
func (s Setup) mismatch(slot store.SlotStatus) error {
	if why := slot.Mismatch(); why != "" {
		return halt.Of(&replication.SlotMismatchError{Slot: s.Config.Postgres.Slot, Why: why})
	}
	return nil
}

// checkPublication creates the publication before a slot exists, and refuses one that would hide rows.
func (s Setup) checkPublication(ctx context.Context, create bool) error {
	name := s.Config.Postgres.Publication
	if create {
		if err := s.Store.CreatePublication(ctx, name); err != nil {
			return explainStore(err)
		}
	}
	problems, err := s.Store.CheckPublication(ctx, name)
	if err != nil {
		return explainStore(err)
	}
	if len(problems) == 0 {
		return nil
	}
	var what, repair []string
	for _, p := range problems {
		what, repair = append(what, p.What), append(repair, p.Repair)
	}
	return halt.Incomplete(name, what, repair)
}

// Drift returns a halt if the table or the publication differs from the state, or from the one that
// every event uses. It is for a relay that streams: nothing is created. The table is returned if it could
// be read.
func (s Setup) Drift(ctx context.Context, state *store.State) (store.Outbox, error) {
	table, err := s.Store.Outbox(ctx)
	if err != nil {
		return store.Outbox{}, explainTable(err)
	}
	slot := store.SlotStatus{Exists: true, Plugin: "pgoutput"} // the stream runs: nothing is wrong with it
	if err := s.checkState(ctx, &found{state: state, table: table, slot: slot}); err != nil {
		return table, err
	}
	return table, s.checkPublication(ctx, false)
}

// Repaired reports whether the cause of an error is gone that ended a session because of what the slot holds: the next
// session may make a new slot.
func (s Setup) Repaired(ctx context.Context, err error) bool {
	if refusal(err) == "" || s.Config.Postgres.OnSlotLost == config.SlotLostHalt {
		return false
	}
	if _, err := s.Store.Outbox(ctx); err != nil {
		return false
	}
	return s.checkPublication(ctx, false) == nil
}
