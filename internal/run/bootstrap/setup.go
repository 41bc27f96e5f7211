// Package bootstrap finds out what a start is, and makes what a first start lacks in Postgres: tables, state,
// publication and slot, in the only safe order. It decides when all begins again from the table: when the slot was lost
// or moved, or holds what cannot be read. It starts no stream, takes nothing over, publishes nothing and knows no
// relay: it touches the database through Tables and Server only.
//
// What another relay may change between two of its steps is in races.go. What needs a server to be tested is tested in
// package relay: slots_test.go, refused_test.go, races_test.go, waiting_test.go.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Tables is the part of the store that a start uses; package store documents its methods.
type Tables interface {
	Outbox(ctx context.Context) (store.Outbox, error)
	CheckExpressions(ctx context.Context) error
	Migrate(ctx context.Context) error
	CreatePublication(ctx context.Context, name string) error
	CheckPublication(ctx context.Context, name string) ([]store.Problem, error)
	Slot(ctx context.Context) (store.SlotStatus, error)
	Barrier(ctx context.Context, timeout time.Duration) ([]store.Blocker, error)

	State(ctx context.Context) (*store.State, error)
	Memories(ctx context.Context) ([]store.Memory, error)
	Register(ctx context.Context, systemID string, timeline int32, tableOID uint32, phase string) (*store.State, error)

	CountUnrecorded(ctx context.Context, limit int64) (int64, error)
	SetBaseline(ctx context.Context) (rows int64, err error)
	BeginCatchUp(ctx context.Context, late bool) error
	BeginCatchUpSince(ctx context.Context, epoch int64, late bool) (begun bool, err error)
	BeginCatchUpOfLost(ctx context.Context) (begun bool, err error)
}

// Server runs commands on replication connections of their own; see package replication.
type Server interface {
	Identify(ctx context.Context, c replication.Config) (replication.System, error)
	CreateSlot(ctx context.Context, c replication.Config) (outbox.LSN, error)
	DropSlot(ctx context.Context, c replication.Config) error
}

// ErrSuperseded reports that another relay has had the slot since this process had it last.
var ErrSuperseded = errors.New("another relay had the slot; starting again")

// Setup makes what a relay needs in Postgres. Both `init` and every start of a session use it.
type Setup struct {
	Config      config.Config
	Replication replication.Config // of the slot and the server that Config names
	Store       Tables
	Server      Server
	Logger      zerolog.Logger
	Last        LastSession // of this process; empty when it had none
	// Superseded reports whether the process must begin again before it makes anything: what it has in memory may be out
	// of date. May be nil.
	Superseded func(*store.State) bool
	Older      *OlderRows // remembered from one look to the next; may be nil
	Counted    func()     // called when a slot was found lost or moved, and all begins again from the table; may be nil
	TableFirst func(bool) // called with whether rows are to be published that the stream does not bring; may be nil
}

// found holds what a start found and changed.
type found struct {
	table     store.Outbox
	state     *store.State // nil: no relay has used the slot yet
	slot      store.SlotStatus
	recovered bool // all begins again from the table, and the slot is gone
}

// Prepare finds out what this start is and makes what a first start lacks, in the only safe order: tables, state with
// phase catch_up, publication, slot. It does not make the outbox itself. It returns a *halt.Error where going on could
// lose events, and a *replication.SlotBusyError while another relay streams.
func (s Setup) Prepare(ctx context.Context) (store.Outbox, error) {
	var f found
	for _, step := range []func(context.Context, *found) error{
		s.look, s.examine, s.recoverLost, s.begin, s.publish, s.recoverUnreadable, s.makeSlot,
	} {
		err := step(ctx, &f)
		if f.state != nil && s.TableFirst != nil {
			h := halt.Of(err)
			s.TableFirst(f.state.Phase == store.CatchUp || h != nil && h.Code == halt.SlotMoved)
		}
		if err != nil {
			return f.table, err
		}
	}
	return f.table, nil
}

// look reads what is there, and migrates the relay's own tables, unless the slot is another's.
func (s Setup) look(ctx context.Context, f *found) (err error) {
	if err := s.CheckSlot(ctx); err != nil {
		return err
	}
	if f.table, err = s.Store.Outbox(ctx); err != nil {
		return explainTable(err)
	}
	if err = s.Store.Migrate(ctx); err != nil {
		return explainStore(err)
	}
	if f.state, err = s.Store.State(ctx); err != nil {
		return explainStore(err)
	}
	if f.slot, err = s.Store.Slot(ctx); err != nil {
		return explainStore(err)
	}
	return nil
}

// examine refuses what no start can go on with, before anything is made or decided.
func (s Setup) examine(ctx context.Context, f *found) error {
	if f.slot.Recovery {
		return readOnly(nil)
	}
	if err := s.mismatch(f.slot); err != nil {
		return err
	}
	if err := decodes(f.slot); err != nil {
		return err
	}
	if err := s.Last.broken.halt(f.slot, s.Last.Confirmed); err != nil {
		return err
	}
	if f.state != nil && s.Superseded != nil && s.Superseded(f.state) { // a standby keeps nothing of its last term
		return ErrSuperseded
	}
	if f.slot.Active { // asking for the stream would be refused and fill the server's log at each look
		return &replication.SlotBusyError{Slot: s.Config.Postgres.Slot, PID: int64(f.slot.ActivePID)}
	}
	if err := s.CheckExpressions(ctx); err != nil {
		return err
	}
	if err := s.checkState(ctx, f); err != nil {
		return err
	}
	if f.state == nil && f.slot.Exists && f.slot.WALStatus == lostWAL {
		return s.explainUnknown(ctx)
	}
	return s.checkMemory(ctx, f)
}

// recoverLost begins again from the table if the slot was lost, or moved by someone else.
func (s Setup) recoverLost(ctx context.Context, f *found) error {
	if lost := lostSlot(f.state, f.slot); lost != "" {
		if err := s.recoverSlot(ctx, f, lost); err != nil {
			return err
		}
	}
	return s.explainMoved(ctx, f.state, f.slot)
}

// begin commits the state of a first start, if that may publish what the table holds.
func (s Setup) begin(ctx context.Context, f *found) (err error) {
	if !f.recovered && (f.state == nil || !f.slot.Exists && !f.state.Baseline) {
		if err := s.countOlderRows(ctx); err != nil {
			return err // before anything is created
		}
	}
	if f.state == nil {
		f.state, err = s.register(ctx, f.table)
	}
	return err
}

// publish makes the publication where there is no slot yet, and refuses one that would hide rows: once it is repaired
// the table comes first.
func (s Setup) publish(ctx context.Context, f *found) error {
	err := s.checkPublication(ctx, !f.recovered && !f.slot.Exists)
	if err != nil && halt.Of(err) != nil && (f.state.Phase == store.Stream || f.state.CatchUpReady) {
		err = errors.Join(err, s.Store.BeginCatchUp(ctx, true))
	}
	return err
}

// recoverUnreadable begins again from the table if the last session could not read what the slot holds.
func (s Setup) recoverUnreadable(ctx context.Context, f *found) error {
	if !f.slot.Exists || s.Last.RefusedAt == 0 || f.slot.Confirmed > s.Last.RefusedAt ||
		s.Config.Postgres.OnSlotLost == config.SlotLostHalt {
		return nil
	}
	return s.recoverSlot(ctx, f, s.Last.Refusal)
}

// makeSlot makes the slot if there is none.
func (s Setup) makeSlot(ctx context.Context, f *found) error {
	if f.slot.Exists {
		return nil
	}
	if f.state.CatchUpReady {
		// The list of older rows belongs to a slot that is gone: a new one needs a new list.
		if err := s.beginLost(ctx, f.state); err != nil {
			return err
		}
	}
	if !f.recovered {
		if err := s.setBaseline(ctx, f.state); err != nil {
			return err
		}
	}
	if err := s.stillFirst(ctx); err != nil {
		return err
	}
	at, err := s.createSlot(ctx)
	if err != nil {
		return err
	}
	return s.tableFirst(ctx, at)
}

// CreateAll creates what is missing before a first start: the outbox, the relay's own objects, the publication and the
// slot. View creates the view.
func (s Setup) CreateAll(ctx context.Context, view func(context.Context) error) error {
	for _, step := range []func(context.Context) error{s.CheckSlot, s.CanDecode, s.CreateTables, view} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	_, err := s.Prepare(ctx)
	if _, streaming := errors.AsType[*replication.SlotBusyError](err); streaming {
		return nil // a relay runs: all that it needs is there
	}
	return err
}

// PreparePublication makes the publication if there is none, where there is no slot yet, and refuses one that would
// hide rows. It makes nothing for which the server keeps WAL, nor decides which events are the relay's: until the first
// start another worker may publish from the outbox. The tables must be there. It returns a *halt.Error as Prepare does.
func (s Setup) PreparePublication(ctx context.Context) error {
	if _, err := s.Store.Outbox(ctx); err != nil {
		return explainTable(err)
	}
	if err := s.CheckExpressions(ctx); err != nil {
		return err
	}
	return s.checkPublication(ctx, true)
}

// register commits phase catch_up, before a slot exists: a crash between the two must not look like a finished start.
func (s Setup) register(ctx context.Context, table store.Outbox) (*store.State, error) {
	system, err := s.Server.Identify(ctx, s.Replication)
	if err != nil {
		return nil, err
	}
	state, err := s.Store.Register(ctx, system.ID, system.Timeline, table.OID, store.CatchUp)
	if err != nil {
		return nil, explainStore(fmt.Errorf("register the slot in the relay's state: %w", err))
	}
	return state, nil
}

// setBaseline makes the rows that are older than the slot that is about to be made count as published, if they shall
// not be caught up with.
func (s Setup) setBaseline(ctx context.Context, state *store.State) error {
	if s.Config.Outbox.CatchUp || state.Baseline {
		return nil
	}
	n, err := s.Store.SetBaseline(ctx)
	if err != nil {
		return explainStore(err)
	}
	s.Logger.Info().Int64("rows", n).Msg("outbox.catch_up is false: existing rows count as published")
	return nil
}
