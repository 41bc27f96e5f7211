package simulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// tables is one process's pool of connections to the relay's tables: what package store does, in memory. A call is one
// transaction, and takes place at one moment of it.
type tables struct {
	relay.Tables // what the simulator does not know yet panics
	w            *world
	p            *process
	*pool
	slot, lanes  string
	mark, delete bool
	retention    time.Duration
	hold         bool // dead letters hold their lanes

	// Guarded by world.mu.
	source  int32
	schema  string  // of one of several outboxes
	oid     uint32  // of its table, likewise
	members []int32 // sources of several outboxes, for the slot's tables; nil: there is one
}

// pool has the fields that all tables of a process share. Guarded by world.mu.
type pool struct {
	epoch int64
	ended bool // a take-over by another process has ended its connections; the next call finds that
}

// Close has nothing to do.
func (t *tables) Close() {}

// do is the frame of a call: where it may be slow, fail, be cut off, or lose its answer. effect runs with mu held.
func (t *tables) do(ctx context.Context, name string, effect func(db *database) error) error {
	w, p := t.w, t.p
	if err := p.pass(ctx, name); err != nil {
		return err
	}
	w.mu.Lock()
	w.counts.Calls++
	p.calls[name]++
	d := w.dice(aboutCall, uint64(p.number), about(name), uint64(p.calls[name]))
	fails, lost, pause := w.troubles(d)
	pause += w.slowStart(name)
	w.server.called++
	number, epoch := w.server.called, t.epoch
	w.mu.Unlock()

	waited := p.sleep(ctx, pause)
	w.mu.Lock()
	var err error
	told := false // that another process has the slot
	switch orphan := d.chance(0.5); {
	case !waited && !orphan: // cut off before the server did it
		err = io.ErrUnexpectedEOF
	case !w.server.up:
		err = &pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}
	// a take-over ended the connection
	case number < w.server.takeOver && epoch > 0 && epoch < w.server.db.epochs[t.slot], t.ended && epoch > 0:
		t.ended, told = false, true
		err = &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"}
	case fails:
		err = t.failure(d)
	default:
		err = t.effect(ctx, name, effect)
		told = errors.Is(err, store.ErrFenced)
		if err != nil {
			w.note("p%d %s: %v", p.number, name, err)
		}
		if lost && err == nil {
			w.counts.LostAnswers++
			w.note("p%d %s: done, and the answer is lost", p.number, name)
			err = io.ErrUnexpectedEOF
		}
	}
	if told && epoch == t.epoch { // else it tells of the process's own take-over
		p.learnt = time.Now()
	}
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	w.mu.Unlock()
	if passed := p.pass(ctx, name+" ends"); passed != nil {
		return passed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (t *tables) failure(d *dice) error {
	t.w.counts.FailedCalls++
	return one[error](d, io.ErrUnexpectedEOF,
		&pgconn.PgError{Code: "40P01", Message: "deadlock detected"},
		&pgconn.PgError{Code: "55P03", Message: "canceling statement due to lock timeout"},
		&pgconn.PgError{Code: "53100", Message: "could not extend file: No space left on device"})
}

// fenced is do for writes that only the owner of the slot may make.
func (t *tables) fenced(ctx context.Context, name string, effect func(db *database) error) error {
	return t.do(ctx, name, func(db *database) error {
		if db.epochs[t.slot] != t.epoch && t.w.mutant != noFence {
			t.w.counts.Fenced++
			return store.ErrFenced
		}
		return effect(db)
	})
}

// reads is fenced for what says which events are to be sent.
func (t *tables) reads(ctx context.Context, name string, effect func(db *database) error) error {
	if t.w.mutant == noReadFence {
		return t.do(ctx, name, effect)
	}
	return t.fenced(ctx, name, effect)
}

// relaxed notes how to take a write back that did not wait for the disk; durable, that nothing is to be taken back.
// A real server cannot be made to forget.
func (t *tables) relaxed(undo func()) {
	if t.w.real == nil {
		t.w.server.undo = append(t.w.server.undo, undo)
	}
}
func (t *tables) durable() { t.w.server.undo = t.w.server.undo[:0] }

// Slot is the slot's row of pg_replication_slots.
func (t *tables) Slot(ctx context.Context) (st store.SlotStatus, err error) {
	err = t.do(ctx, "slot", func(*database) error {
		st = store.SlotStatus{WALEnd: t.w.server.wal.end}
		slot := t.w.server.slots[t.slot]
		if slot == nil {
			return nil
		}
		st.Exists, st.Plugin, st.Confirmed, st.Restart, st.WALStatus = true, "pgoutput", slot.confirmed, slot.confirmed,
			"reserved"
		if slot.lost {
			st.WALStatus = "lost"
		}
		if slot.holder != nil {
			st.Active, st.ActivePID = true, uint32(slot.holder.grant.PID)
		}
		if slot.holder == nil || slot.holder.p != t.p {
			t.p.learnt = time.Now()
		}
		return nil
	})
	return st, err
}

// State is the state of the slot.
func (t *tables) State(ctx context.Context) (st *store.State, err error) {
	err = t.do(ctx, "state", func(db *database) error {
		st = t.state(db)
		return nil
	})
	return st, err
}

func (t *tables) state(db *database) *store.State {
	kept := db.states[t.stateKey()]
	if kept == nil {
		return nil
	}
	st := *kept
	st.Epoch = db.epochs[t.slot]
	st.Swept = !t.audit(db).SweptAt.IsZero()
	t.source = st.Source
	return &st
}

// Memories is empty: no simulated relay comes under another slot.
func (t *tables) Memories(context.Context) ([]store.Memory, error) { return nil, nil }

// Register makes the rows of a first start.
func (t *tables) Register(ctx context.Context, system string, timeline int32, oid uint32,
	phase string) (st *store.State, err error) {
	err = t.do(ctx, "register", func(db *database) error {
		of := sourceOf{t.slot, oid}
		if db.sources[of] == 0 {
			db.sources[of] = int32(1000 + len(db.sources))
		}
		t.source, t.oid = db.sources[of], oid
		if phase == store.AsSlot {
			phase = store.Stream
			if slot := db.states[t.slot]; slot.Phase == store.CatchUp && !slot.CatchUpReady {
				phase = store.CatchUp
			}
		}
		db.schemas[t.source] = t.schema
		if kept := db.states[t.stateKey()]; kept == nil || kept.Source != db.sources[of] {
			db.states[t.stateKey()] = &store.State{Source: db.sources[of], TableOID: oid, Phase: phase, Dirty: true,
				SystemID: system, Timeline: timeline, Lanes: t.lanes}
			t.audit(db)
		}
		st = t.state(db)
		t.durable()
		return nil
	})
	return st, err
}

// TakeOver ends the calls of older epochs and raises the epoch.
func (t *tables) TakeOver(ctx context.Context, pid uint32, timeline int32) (epoch int64, listed bool, err error) {
	err = t.do(ctx, "take over", func(db *database) error {
		s := t.w.server
		if t.w.mutant != anyLease {
			if slot := s.slots[t.slot]; slot == nil || slot.holder == nil || slot.holder.grant.PID != int64(pid) {
				return store.ErrLeaseLost
			}
		}
		s.takeOver = s.called
		rise := int64(1)
		if db.states[t.slot].Timeline != timeline {
			rise = 1000 // a server that was promoted may have missed take-overs
		}
		db.epochs[t.slot] += rise
		epoch = db.epochs[t.slot]
		t.w.serials++
		t.w.takers = append(t.w.takers, t.p)
		t.w.turns = append(t.w.turns, t.w.turnOf(t.p))
		t.w.takenAt = time.Now()
		t.w.passOn(t.p)
		t.p.unsure = true
		t.w.counts.TakeOvers++
		t.epoch, t.p.serial = epoch, t.w.serials
		t.endOthers()
		st := db.states[t.slot]
		if slot := s.slots[t.slot]; slot != nil && st.TakenLSN != 0 && slot.confirmed > st.TakenLSN {
			for _, st := range db.statesOf(t.slot) { // their lists are another slot's
				st.CatchUpReady = false
			}
		}
		st.Dirty, st.Timeline, st.TakenLSN = true, timeline, s.wal.end
		listed = st.CatchUpReady
		s.wal.end += walCommit
		t.durable()
		t.w.note("p%d takes over, epoch %d, with backend %d", t.p.number, epoch, pid)
		t.w.judgeTakeOver(t.p, t.slot, pid)
		return nil
	})
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.p.unsure = t.p.unsure && err != nil
	return epoch, listed, err
}

// SaveProgress notes the confirmed position.
func (t *tables) SaveProgress(ctx context.Context, confirmed outbox.LSN) error {
	return t.fenced(ctx, "save progress", func(db *database) error {
		st := db.states[t.slot]
		if !st.Dirty { // one that was on its way when a clean stop was recorded
			return nil
		}
		was := *st
		st.Confirmed, st.Lanes = confirmed, t.lanes
		t.relaxed(func() { st.Confirmed, st.Lanes = was.Confirmed, was.Lanes })
		return nil
	})
}

// CleanStop notes that nothing is left.
func (t *tables) CleanStop(ctx context.Context, confirmed outbox.LSN) error {
	return t.fenced(ctx, "clean stop", func(db *database) error {
		db.states[t.slot].Confirmed, db.states[t.slot].Dirty, db.states[t.slot].Lanes = confirmed, false, t.lanes
		t.durable()
		t.w.note("p%d records a clean stop at %v", t.p.number, confirmed)
		return nil
	})
}

// Clock is the time.
func (t *tables) Clock(ctx context.Context) (now time.Time, err error) {
	err = t.do(ctx, "clock", func(*database) error {
		now = clock()
		return nil
	})
	return now, err
}

// EmitToken commits a message.
func (t *tables) EmitToken(ctx context.Context, prefix, content string) (at outbox.LSN, err error) {
	err = t.do(ctx, "emit token", func(*database) error {
		at = t.w.server.wal.end
		t.w.server.commitToken(prefix, content)
		t.durable()
		return nil
	})
	return at, err
}

// Lookup says which events are terminal.
func (t *tables) Lookup(ctx context.Context, ids [][]byte) (found []bool, err error) {
	events := make([]store.Sighting, len(ids))
	for i := range ids {
		events[i].ID = ids[i]
	}
	if found = make([]bool, len(ids)); len(ids) > 0 {
		err = t.known(ctx, events, found)
	}
	return found, err
}

// Settle journals events and stores dead letters.
func (t *tables) Settle(ctx context.Context, published []store.Published, dead []store.Dead) error {
	do := t.do
	if len(dead) > 0 {
		do = t.fenced
	}
	return do(ctx, "settle", func(db *database) error {
		t.enterJournal(db, published)
		for i := range dead {
			t.bury(db, &dead[i])
		}
		t.durable()
		return nil
	})
}

// SettleRetried journals parked events and takes them out.
func (t *tables) SettleRetried(ctx context.Context, published []store.Published) error {
	return t.fenced(ctx, "settle retried", func(db *database) error {
		t.w.counts.Retried += len(published)
		t.enterJournal(db, published)
		for _, p := range published {
			p.ID = bytes.Clone(p.ID)
			if at := t.at(p.Source, p.ID); movedTo(db.journal[at], p) {
				db.journal[at], db.journaled[at] = p, clock()
				t.w.judgeJournaled(t, p)
			}
		}
		for _, p := range published {
			if row := t.unpark(db, p.Source, p.ID); row != nil && row.replay != 0 {
				if d := db.dead[t.at(p.Source, p.ID)]; d != nil { // else it was republished
					d.replayed = true
				}
			}
		}
		t.durable()
		return nil
	})
}
