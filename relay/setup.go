package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

// Setup makes what a relay needs in Postgres. Both `init` and every start of a session use it.
type Setup struct {
	Config   config.Config
	Store    Tables
	Postgres Postgres // nil: the server that Config names
	Logger   zerolog.Logger
	Last     LastSession // of this process; empty when it had none
	// Superseded says that the process must begin anew before it makes anything; see Relay.superseded. May be nil.
	Superseded func(*store.State) bool
	Older      *olderRows // remembered from one look to the next; may be nil
	Counted    func()     // called when a slot was found lost or moved, and all begins again from the table; may be nil
}

// LastSession is what a process knows of its own last session.
type LastSession struct {
	Epoch     int64
	Confirmed outbox.LSN // the most that it can have confirmed
	// RefusedAt is up to where the slot stood when what it holds could not be read, for the reason in Refusal (see refusal); 0: it
	// could. A slot that stands further on is another one, made by another relay: made anew once more it would lose what that
	// one has not read.
	RefusedAt outbox.LSN
	Refusal   string
	Unheard   int // sessions in a row that ended before their stream was read; see session.sound
	Broken    broken
}

// Prepare finds out what this start is and makes what a first start lacks, in the only safe order: tables, state with
// phase catch_up, publication, slot. It does not make the outbox itself. It returns a *Halt where going on could lose
// events, and a *replication.SlotBusyError while another relay streams.
func (s Setup) Prepare(ctx context.Context) (table store.Outbox, err error) {
	if s.Postgres == nil {
		s.Postgres = server{}
	}
	if table, err = s.Store.Outbox(ctx); err != nil {
		return table, explainTable(err)
	}
	if err = s.Store.Migrate(ctx); err != nil {
		return table, explainStore(err)
	}
	state, err := s.Store.State(ctx)
	if err != nil {
		return table, explainStore(err)
	}
	slot, err := s.Store.Slot(ctx)
	if err != nil {
		return table, explainStore(err)
	}
	if slot.Recovery {
		return table, readOnly(nil)
	}
	if err := decodes(slot); err != nil {
		return table, err
	}
	if err := s.Last.Broken.halt(slot, s.Last.Confirmed); err != nil {
		return table, err
	}
	if slot.Active { // asking for the stream would be refused and fill the server's log at each look
		return table, &replication.SlotBusyError{Slot: s.Config.Postgres.Slot, PID: int64(slot.ActivePID)}
	}
	if state != nil && s.Superseded != nil && s.Superseded(state) {
		return table, errSuperseded
	}
	if err := s.CheckExpressions(ctx); err != nil {
		return table, err
	}
	if err := s.checkState(state, table, slot); err != nil {
		return table, err
	}
	if state == nil && slot.Exists && slot.WALStatus == lostWAL {
		return table, s.explainUnknown(ctx)
	}
	recovered := false
	if lost := lostSlot(state, slot); lost != "" {
		if err := s.recoverSlot(ctx, state, lost, slot); err != nil {
			return table, err
		}
		recovered, slot.Exists = true, false
	}
	if err := s.explainMoved(ctx, state, slot); err != nil {
		return table, err
	}
	if !recovered && (state == nil || !slot.Exists) {
		if err := s.countOlderRows(ctx); err != nil {
			return table, err // before anything is created
		}
	}
	if state == nil {
		if state, err = s.register(ctx, table); err != nil {
			return table, err
		}
	}
	if err := s.checkPublication(ctx, !recovered && !slot.Exists); err != nil {
		if halt.Of(err) != nil && (state.Phase == store.Stream || state.CatchUpReady) {
			err = errors.Join(err, s.Store.BeginCatchUp(ctx, true)) // once it is repaired
		}
		return table, err
	}
	if slot.Exists && s.Last.RefusedAt != 0 && slot.Confirmed <= s.Last.RefusedAt && s.Config.Postgres.OnSlotLost != config.SlotLostHalt {
		if err := s.recoverSlot(ctx, state, s.Last.Refusal, slot); err != nil {
			return table, err
		}
		recovered, slot.Exists = true, false
	}
	if slot.Exists {
		return table, nil
	}
	if state.CatchUpReady {
		// The list of older rows belongs to a slot that is gone: a new one needs a new list.
		if err := s.beginLost(ctx, state); err != nil {
			return table, err
		}
	}
	if !recovered {
		if err := s.setBaseline(ctx, state); err != nil {
			return table, err
		}
	}
	if err := s.stillFirst(ctx); err != nil {
		return table, err
	}
	at, err := s.createSlot(ctx)
	if err != nil {
		return table, err
	}
	return table, s.tableFirst(ctx, at)
}

// PreparePublication makes the publication if there is none, where there is no slot yet, and refuses one that would hide rows. It
// makes nothing for which the server keeps WAL, nor decides which events are the relay's: until the first start another
// worker may publish from the outbox. The tables must be there. It returns a *Halt as Prepare does.
func (s Setup) PreparePublication(ctx context.Context) error {
	if _, err := s.Store.Outbox(ctx); err != nil {
		return explainTable(err)
	}
	if err := s.CheckExpressions(ctx); err != nil {
		return err
	}
	return s.checkPublication(ctx, true)
}

// beginAgain commits that the table comes first, whatever the slot is like, unless a relay has taken over since the state was read.
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

// explainMoved finds a slot that somebody else has moved forward, or made anew under the same name: it stands where no
// relay has confirmed. What it has skipped is in the table only, so the table comes first. After an unclean stop a slot
// that is ahead of the state is usual, because keepalives are confirmed without a note; then the reconciler's first round
// tells whether something was skipped.
func (s Setup) explainMoved(ctx context.Context, state *store.State, slot store.SlotStatus) error {
	if state == nil || !slot.Exists || state.Phase != store.Stream {
		return nil
	}
	known := state.Confirmed
	switch {
	case !state.Dirty:
	case s.Last.Epoch != 0 && s.Last.Epoch == state.Epoch: // nobody else had it since
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
			Reason: fmt.Sprintf("the slot %q stands at %s, and no relay has confirmed more than %s: somebody moved it forward, or made it anew", name, slot.Confirmed, known),
			Risk:   "events that were committed between the two and not yet published are only in the outbox table now",
			Remedy: "set postgres.on_slot_lost: recover, which publishes all rows of the table that are not published, then streams"}
	}
	s.Logger.Warn().Str("slot", name).Str("confirmed", known.String()).Str("slot_at", slot.Confirmed.String()).
		Msg("the slot was moved forward or made anew by somebody else; beginning again from the table: every row that is not published, then the stream")
	return s.beginAgain(ctx, state, true)
}

// readOnly is the halt for a standby.
func readOnly(cause error) *halt.Error {
	return &halt.Error{Code: halt.ReadOnly, Cause: cause,
		Reason: "the server that postgres.url reaches is a standby, or read-only: nothing can be recorded there",
		Risk:   halt.RiskWAL,
		Remedy: "point postgres.url and postgres.replication_url at the primary, or list all hosts and add target_session_attrs=read-write; after a promotion it passes by itself"}
}

// setBaseline makes the rows that are older than the slot that is about to be made count as published, if they shall not
// be caught up with.
func (s Setup) setBaseline(ctx context.Context, state *store.State) error {
	if s.Config.Outbox.CatchUp || state.Baseline {
		return nil
	}
	n, err := s.Store.SetBaseline(ctx)
	if err != nil {
		return explainStore(err)
	}
	s.Logger.Info().Int64("rows", n).Msg("outbox.catch_up is false: rows that are there now count as published")
	return nil
}

// checkState compares what the relay remembers with what is there.
func (s Setup) checkState(state *store.State, table store.Outbox, slot store.SlotStatus) error {
	switch {
	case slot.Exists && slot.Plugin != "pgoutput":
		// Seen here, before a publication is asked for that such a slot has no use for.
		return halt.Of(&replication.SlotMismatchError{Slot: s.Config.Postgres.Slot,
			Why: fmt.Sprintf("its plugin is %q; a logical slot with pgoutput is needed", slot.Plugin)})
	case state != nil && state.TableOID != table.OID:
		return &halt.Error{Code: halt.OtherTable,
			Reason: fmt.Sprintf("the outbox %s is another table than the one that the slot %q was used for (oid %d, was %d)", s.Config.Outbox.Table, s.Config.Postgres.Slot, table.OID, state.TableOID),
			Risk:   "rows that were committed into either table around the exchange may not be in the stream",
			Remedy: "if the table was swapped by mistake, swap it back; if it was made anew, give the relay a new postgres.slot name, so that it starts with a catch-up"}
	case slot.Exists && (state == nil || state.Phase == store.CatchUp) && !s.Config.Outbox.CatchUp && (state == nil || !state.Baseline):
		return &halt.Error{Code: halt.Baseline,
			Reason: fmt.Sprintf("outbox.catch_up is false and the slot %q was made before the relay could note which rows are older than it", s.Config.Postgres.Slot),
			Risk:   "rows that the slot holds could be taken for older ones and never be published",
			Remedy: "drop the slot (SELECT pg_drop_replication_slot('" + s.Config.Postgres.Slot + "')) and let the relay create it, or set outbox.catch_up: true"}
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
		what = append(what, p.What)
		if !slices.Contains(repair, p.Repair+";") { // one statement may repair several things
			repair = append(repair, p.Repair+";")
		}
	}
	return &halt.Error{Code: halt.Publication,
		Reason: fmt.Sprintf("publication %q: %s", name, strings.Join(what, "; ")),
		Risk:   "rows that are committed while this lasts are not in the stream, though they are in the table",
		Remedy: "run " + strings.Join(repair, " ")}
}

// explainTable is explainStore for the look at the outbox itself: when the catalog could be read and the table is there,
// what is wrong is one of its columns, and the error says which and how to repair it.
func explainTable(err error) error {
	if errors.Is(err, store.ErrNoOutbox) || store.Classify(err) != store.Unclassified {
		return explainStore(err)
	}
	return halt.MissingColumn(err)
}

// explainStore turns what a new attempt cannot cure into a halt.
func explainStore(err error) error {
	refused := store.ExpressionErrors(err)
	switch {
	case len(refused) > 0:
		return refusedExpressions(refused, err)
	case errors.Is(err, store.ErrNoOutbox):
		return &halt.Error{Code: halt.NotInitialised, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "run cdc-relay init, or correct outbox.table or postgres.url"}
	case store.Classify(err) == store.FindPrimary:
		return readOnly(err)
	case store.Classify(err) == store.Setup, store.Classify(err) == store.Unclassified && !errors.Is(err, context.Canceled):
		return &halt.Error{Code: halt.Setup, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "run cdc-relay check: it names what is missing and the statement that mends it"}
	}
	return err
}

// register commits phase catch_up, before a slot exists: a crash between the two must not look like a finished start.
func (s Setup) register(ctx context.Context, table store.Outbox) (*store.State, error) {
	system, err := s.Postgres.Identify(ctx, ReplicationConfig(s.Config))
	if err != nil {
		return nil, err
	}
	state, err := s.Store.Register(ctx, system.ID, system.Timeline, table.OID, store.CatchUp)
	if err != nil {
		return nil, explainStore(fmt.Errorf("register the slot in the relay's state: %w", err))
	}
	return state, nil
}
