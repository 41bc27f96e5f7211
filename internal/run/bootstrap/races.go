package bootstrap

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// What a start sees, step by step, may be changed between two steps by another relay that starts at the same time. Most
// of that ends with the grant of the slot, which only one of them gets. This file is about what would not.

// errMeanwhile reports that what a start has seen holds no more.
var errMeanwhile = errors.New("another relay started at the same time; looking again")

// stillFirst looks once more whether the table comes first: since the first look another relay may have made the slot,
// been through with the catch-up and lost the slot again. A slot that is made now has nothing of what came in the
// meantime.
func (s Setup) stillFirst(ctx context.Context) error {
	state, err := s.Store.State(ctx)
	if err != nil {
		return explainStore(err)
	}
	if state == nil || state.Phase != store.CatchUp || state.CatchUpReady {
		return errMeanwhile
	}
	return nil
}

// beginLost is beginAgain if the slot still is gone or invalidated: to begin again under another relay, which has made
// a new one, would let the next start publish from the table what that one has in its stream.
func (s Setup) beginLost(ctx context.Context, state *store.State) error {
	begun, err := s.Store.BeginCatchUpOfLost(ctx)
	switch {
	case err != nil:
		return explainStore(err)
	case !begun:
		return errMeanwhile
	}
	state.Phase, state.Dirty, state.CatchUpReady = store.CatchUp, true, false
	return nil
}

// tableFirst is for a slot that this start has just made, and that has everything from the position on: while Postgres
// made it, which takes until every transaction of that time has ended, another relay may have been through with the
// catch-up of a slot that is gone. Then all begins again from the table. Not so if it was this very slot, which another
// relay had before we have looked: its stream also has what the application deletes from the table, in the order in
// which that came. The WAL tells: it had not come to our slot's position when a slot was taken over that was gone
// before.
func (s Setup) tableFirst(ctx context.Context, at outbox.LSN) error {
	state, err := s.Store.State(ctx)
	switch {
	case err != nil:
		return explainStore(err)
	case state == nil, state.Phase == store.CatchUp && !state.CatchUpReady, state.TakenLSN >= at:
		return nil
	}
	begun, err := s.Store.BeginCatchUpSince(ctx, state.Epoch, false)
	if err == nil && !begun {
		err = errMeanwhile
	}
	return err
}

// explainUnknown handles a lost slot without a state: it was created after the state was read,
// or it is someone else's.
func (s Setup) explainUnknown(ctx context.Context) error {
	state, err := s.Store.State(ctx)
	switch {
	case err != nil:
		return explainStore(err)
	case state != nil:
		return errMeanwhile
	}
	return halt.Of(&replication.SlotMismatchError{Slot: s.Config.Postgres.Slot, Why: "the server has invalidated it, " +
		"and no relay of this schema has used it"})
}
