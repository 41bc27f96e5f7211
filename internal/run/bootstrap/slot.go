package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// lostWAL is the wal_status of a slot that the server has given up.
const lostWAL = "lost"

// lostSlot says how the slot that the relay has used was lost; empty when it was not.
func lostSlot(state *store.State, slot store.SlotStatus) string {
	switch {
	case slot.Exists && slot.WALStatus == lostWAL:
		return replication.Invalidated(slot.InvalidationReason)
	case !slot.Exists && state != nil && state.Phase == store.Stream:
		return "is gone from this server"
	}
	return ""
}

// recoverSlot begins again from the table, which knows what is not published: phase catch_up is committed, then a new
// slot is made, the unrecorded rows are published in table order, and the stream goes on. Nothing that is still in the
// table is lost; rows that the application deleted in between are.
func (s Setup) recoverSlot(ctx context.Context, f *found, how string) error {
	name, state, slot := s.Config.Postgres.Slot, f.state, f.slot
	if s.Config.Postgres.OnSlotLost == config.SlotLostHalt {
		return &halt.Error{Code: halt.SlotMissing,
			Reason: fmt.Sprintf("the slot %q %s, and the relay has used it before (confirmed %s)", name, how, state.Confirmed),
			Risk:   "events that were committed after that and not yet published are only in the outbox table now",
			Remedy: "if the database failed over, point postgres.url at the server that has the slot; else set " +
				"postgres.on_slot_lost: recover, which makes a new slot and publishes all rows of the table that are not published"}
	}
	system, err := s.Server.Identify(ctx, s.Replication)
	if err != nil {
		return err
	}
	if system.ID != state.SystemID {
		return halt.WrongServer(system.ID, state.SystemID)
	}
	s.Logger.Warn().Str("slot", name).Str("confirmed", state.Confirmed.String()).
		Msg("the slot " + how + "; starting again from the table: a new slot, then every row that is not published, then " +
			"the stream")
	if slot.Exists && slot.WALStatus != lostWAL {
		err = s.beginAgain(ctx, state, false)
	} else if err = s.beginLost(ctx, state); err == nil {
		s.counted()
	}
	if err != nil {
		return err
	}
	if slot.Exists {
		if err := s.Server.DropSlot(ctx, s.Replication); err != nil {
			return err
		}
	}
	f.recovered, f.slot.Exists = true, false
	return nil
}

const (
	slotPatience = 30 * time.Second // how long one attempt to create a slot may wait for running transactions
	slotSays     = 2 * time.Second  // after which the relay says for whose
)

// ErrSlotWaits ends an attempt to create the slot.
var ErrSlotWaits = errors.New("the server waits for every running transaction to end first")

// createSlot returns the position from which the new slot has everything.
func (s Setup) createSlot(ctx context.Context) (at outbox.LSN, err error) {
	bounded, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	saying := time.AfterFunc(slotSays, func() {
		if blockers, err := s.Store.Barrier(bounded, 0); err == nil && len(blockers) > 0 {
			s.Logger.Warn().Str("slot", s.Config.Postgres.Slot).Strs("waits_for", texts(blockers)).
				Msg("Postgres creates the slot when every transaction that runs now has ended, and waits for these")
		}
	})
	defer saying.Stop()
	at, err = s.Server.CreateSlot(bounded, s.Replication)
	if err == nil {
		s.Logger.Info().Str("slot", s.Config.Postgres.Slot).Str("consistent_point", at.String()).Msg("created the " +
			"replication slot")
		return at, nil
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		blockers, _ := s.Store.Barrier(ctx, 0)
		return 0, fmt.Errorf("create the slot: %w, and these still run after %v: %s: %w",
			ErrSlotWaits, slotPatience, strings.Join(texts(blockers), "; "), err)
	}
	return 0, err
}

func texts(blockers []store.Blocker) []string {
	list := make([]string, len(blockers))
	for i, b := range blockers {
		list[i] = b.String()
	}
	return list
}

// beginAgain commits that the table comes first, whatever the slot is like, unless a relay has taken over since the
// state was read.
func (s Setup) beginAgain(ctx context.Context, state *store.State, late bool) error {
	begun, err := s.Store.BeginCatchUpSince(ctx, state.Epoch, late)
	switch {
	case err != nil:
		return explainStore(err)
	case !begun:
		return errMeanwhile
	}
	state.Phase, state.Dirty, state.CatchUpReady, state.CatchUpLate = store.CatchUp, true, false, late || state.CatchUpLate
	s.counted()
	return nil
}

func (s Setup) counted() {
	if s.Counted != nil {
		s.Counted()
	}
}

// explainMoved finds a slot that someone else has moved forward, or made again under the same name: it stands where no
// relay has confirmed. What it has skipped is in the table only, so the table comes first. After an unclean stop a slot
// that is ahead of the state is usual, because keepalives are confirmed without a note; then the reconciler's first
// round tells whether something was skipped.
func (s Setup) explainMoved(ctx context.Context, state *store.State, slot store.SlotStatus) error {
	if state == nil || !slot.Exists || state.Phase != store.Stream {
		return nil
	}
	known := state.Confirmed
	switch {
	case !state.Dirty:
	case s.Last.Epoch != 0 && s.Last.Epoch == state.Epoch && s.Last.Timeline == state.Timeline:
		// No one else had it since: on a promoted server that lacks our take-over, another one's has the same number.
		known = max(known, s.Last.Confirmed)
	default:
		return nil
	}
	if slot.Confirmed <= known {
		return nil
	}
	name := s.Config.Postgres.Slot
	if s.Config.Postgres.OnSlotLost == config.SlotLostHalt {
		return &halt.Error{Code: halt.SlotMoved,
			Reason: fmt.Sprintf("the slot %q stands at %s, and no relay has confirmed more than %s: it was moved "+
				"forward, or created again", name, slot.Confirmed, known),
			Risk: "events that were committed between the two and not yet published are only in the outbox table now",
			Remedy: "set postgres.on_slot_lost: recover, which publishes all rows of the table that are not published, then " +
				"streams"}
	}
	s.Logger.Warn().Str("slot", name).Str("confirmed", known.String()).Str("slot_at", slot.Confirmed.String()).
		Msg("another process moved or recreated the slot; starting again from the table: every row that is " +
			"not published, then the stream")
	return s.beginAgain(ctx, state, true)
}
