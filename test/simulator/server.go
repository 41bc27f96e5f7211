package simulator

import (
	"context"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

const systemID = "7000000000000000001"

// server is a Postgres: WAL, slot, tables, sessions. Guarded by world.mu.
type server struct {
	w        *world
	up       bool
	wal      wal
	slotName string // that the relay uses now
	slots    map[string]*slot
	db       database
	tables   []*table // the outboxes that there are
	table    *table   // the first of them
	running  map[*transaction]struct{}
	locked   map[string]struct{} // lanes that a running transaction has written
	lastXID  uint32
	lastPID  int64
	changed  chan struct{} // closed when there is news for streams and for who waits for transactions
	takeOver uint64        // number of the call of the last take-over; see tables.do
	called   uint64        // calls so far
	undo     []func()      // takes back what was committed without waiting for the disk, oldest first
}

// slot is a replication slot.
type slot struct {
	confirmed outbox.LSN // as the walsender knows it
	saved     outbox.LSN // as it is on disk
	lost      bool
	holder    *stream
	judged    int // items of the WAL that were judged when they were confirmed; see judgeConfirmed
}

func newServer(w *world) *server {
	s := &server{
		w: w, up: true, slotName: "cdc_relay", slots: map[string]*slot{}, running: map[*transaction]struct{}{},
		locked: map[string]struct{}{}, lastXID: 700, lastPID: 1000, changed: make(chan struct{}),
	}
	s.tables = newTables(w.profile.sources)
	s.table = s.tables[0]
	s.wal.end = 0x1000000 + outbox.LSN(newDice(w.seed, aboutServer).below(1<<20))
	s.db = newDatabase()
	return s
}

// tell wakes who waits for news.
func (s *server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// crash ends every session, forgets what was not on disk, and comes back after a while.
func (s *server) crash(away time.Duration) {
	if !s.up {
		return
	}
	s.w.note("Postgres crashes, for %v", away)
	s.w.counts.ServerCrashes++
	s.up = false
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = nil
	for tx := range s.running {
		if tx.commit == 0 {
			s.end(tx)
		} else {
			s.show(tx)
		}
	}
	for _, slot := range s.slots {
		if slot.holder != nil {
			slot.holder.hangUp(io.ErrUnexpectedEOF)
		}
		slot.confirmed = slot.saved
	}
	s.tell()
	s.w.after(away, func() {
		s.w.note("Postgres is back")
		s.up = true
		s.tell()
	})
}

// checkpoint saves the slots' positions.
func (s *server) checkpoint() {
	for _, slot := range s.slots {
		slot.saved = slot.confirmed
	}
}

// loseSlot drops or invalidates the slot.
func (s *server) loseSlot(d *dice) {
	slot := s.slots[s.slotName]
	if slot == nil || slot.lost {
		return
	}
	s.w.counts.SlotsLost++
	if slot.holder != nil {
		slot.holder.hangUp(&pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"})
	}
	if d.chance(0.5) {
		s.w.note("the slot is dropped")
		delete(s.slots, s.slotName)
	} else {
		s.w.note("the slot is invalidated")
		slot.lost = true
	}
}

// forget lets the server notice, now or later, that the process is gone.
func (s *server) forget(p *process) {
	linger := time.Duration(0)
	if d := s.w.dice(aboutDeath, uint64(p.number)); d.chance(s.w.profile.lingering) && !s.w.calm {
		s.w.fault(deathLingers)
		linger = d.pause(0, time.Duration(s.w.profile.config.Postgres.WALSenderTimeout))
	}
	for _, slot := range s.slots {
		if st := slot.holder; st != nil && st.p == p {
			s.w.after(linger, func() { st.hangUp(io.ErrUnexpectedEOF) })
		}
	}
}

// hear gives up on the stream of a process that says nothing any more.
func (s *server) hear(p *process) {
	timeout := time.Duration(s.w.profile.config.Postgres.WALSenderTimeout)
	thawed := p.thawed
	s.w.after(timeout, func() {
		if p.thawed == thawed {
			for _, slot := range s.slots {
				if st := slot.holder; st != nil && st.p == p {
					st.hangUp(io.ErrUnexpectedEOF)
				}
			}
		}
	})
}

// oldestRunning reports whether a transaction with a number up to this one is not over.
func (s *server) oldestRunning(xid uint32) bool {
	for tx := range s.running {
		if tx.xid <= xid {
			return true
		}
	}
	return false
}

// backend is the server as one process reaches it; it is its relay's Postgres.
type backend struct{ p *process }

func (b backend) OpenTables(_ context.Context, c store.Config) (relay.Tables, error) {
	w := b.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	b.p.tables = &tables{w: w, p: b.p, pool: &pool{}, slot: c.Slot, delete: c.AfterPublish == store.Delete,
		mark: c.AfterPublish == store.Mark, hold: c.HoldDead, retention: c.Retention,
		lanes: c.Lanes}
	if w.real != nil {
		return w.real.open(b.p.tables, c), nil
	}
	if w.several() {
		return w.openSeveral(b.p.tables), nil
	}
	if w.profile.people {
		return asked{b.p.tables}, nil
	}
	return b.p.tables, nil
}

func (b backend) Identify(ctx context.Context, _ replication.Config) (replication.System, error) {
	err := b.command(ctx, "identify", func(*server) error { return nil })
	return replication.System{ID: systemID, Timeline: 1}, err
}

func (b backend) DropSlot(ctx context.Context, c replication.Config) error {
	return b.command(ctx, "drop slot", func(s *server) error {
		if slot := s.slots[c.Slot]; slot == nil {
			return &pgconn.PgError{Code: "42704", Message: "replication slot does not exist"}
		} else if slot.holder != nil {
			return &pgconn.PgError{Code: "55006", Message: "replication slot is active"}
		}
		delete(s.slots, c.Slot)
		s.w.note("p%d drops the slot", b.p.number)
		return nil
	})
}

// CreateSlot waits, as the server does, for the transactions that run when it begins.
func (b backend) CreateSlot(ctx context.Context, c replication.Config) (at outbox.LSN, err error) {
	w := b.p.w
	w.mu.Lock()
	upTo := w.server.lastXID
	w.mu.Unlock()
	for {
		w.mu.Lock()
		waits, changed := w.server.oldestRunning(upTo), w.server.changed
		w.mu.Unlock()
		if !waits {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	err = b.command(ctx, "create slot", func(s *server) error {
		if s.slots[c.Slot] != nil {
			return &pgconn.PgError{Code: "42710", Message: "replication slot already exists"}
		}
		at = s.wal.end
		s.slots[c.Slot] = &slot{confirmed: at, saved: at, judged: len(s.wal.items)}
		s.w.note("p%d creates the slot at %v", b.p.number, at)
		return nil
	})
	return at, err
}

// command runs one command on a replication connection of its own.
func (b backend) command(ctx context.Context, name string, run func(*server) error) error {
	p := b.p
	if err := p.pass(ctx, name); err != nil {
		return err
	}
	p.w.mu.Lock()
	p.calls[name]++
	d := p.w.dice(aboutCall, uint64(p.number), about(name), uint64(p.calls[name]))
	fails, lost, pause := p.w.troubles(d)
	p.w.mu.Unlock()
	p.sleep(ctx, pause)
	p.w.mu.Lock()
	var err error
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case p.dead && !d.chance(0.5):
		err = errDead
	case !p.w.server.up || fails:
		p.w.counts.FailedCalls++
		err = io.ErrUnexpectedEOF
	default:
		err = run(p.w.server)
		if lost && err == nil {
			p.w.counts.LostAnswers++
			err = io.ErrUnexpectedEOF
		}
	}
	p.w.mu.Unlock()
	if passed := p.pass(ctx, name+" ends"); passed != nil {
		return passed
	}
	return err
}

// troubles are those of one call to the server. Called with mu held.
func (w *world) troubles(d *dice) (fails, lost bool, pause time.Duration) {
	p := &w.profile
	slow, fails, lost := d.chance(p.sqlSlow), d.chance(p.sqlFails), d.chance(p.sqlLost)
	pause = d.pause(0, 2*time.Millisecond)
	if d.chance(0.5) {
		pause = 0
	}
	if w.calm {
		return false, false, pause
	}
	if slow {
		w.fault(callSlow)
		pause = d.pause(time.Millisecond, one(d, 20*time.Millisecond, 400*time.Millisecond, 3*time.Second))
	}
	return fails, lost, pause
}
