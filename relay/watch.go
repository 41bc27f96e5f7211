package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/restart"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	progressEvery = time.Second      // the state row is written at most this often, and only after events were settled
	storedEvery   = 10 * time.Second // dead letters and parked events are counted this often,
	countRests    = 10               // but at most a tenth of the time: each of them is read
	clockEvery    = 10 * time.Second // the server's clock is compared this often
	slotEvery     = 2 * time.Second  // pg_replication_slots is read this often, and more often where the lease needs it
	stillEvery    = 8 * time.Second  // the rest is read this often while nothing is written; what is older is not shown
)

// watch keeps the state row and the gauges that come from the database up to date. It is the state row's one writer
// between take-over and clean stop. A term has one; only its goroutine uses it.
type watch struct {
	r    *Relay
	term *term
	look time.Duration // pause between two looks at the slot

	rowsLeft      int64     // outbox rows to be marked or deleted, as read last
	moved         uint64    // see noteMoves
	away          outage    // see noteBroker
	seen, settled uint64    // events settled: as known, and when the state row was written
	changed       time.Time // when seen was another number last
	saved         outbox.LSN
	of            *session // that saved is of: where the slot went back, as on a promoted server, its positions are lower

	wrote, looked, compared, clocked time.Time // last

	whole   moment    // of the last look that left nothing out; zero: there is none
	wholeAt time.Time // then
	alike   int       // whole looks at that moment, one after another
}

// moment changes whenever something is written, received or settled.
type moment struct {
	s       *session
	end     outbox.LSN
	settled uint64
}

// still reports whether nothing is left to be read, and nothing has moved since the last two whole looks, so that
// another would show the same. Else this one is to be whole. Rows that are due by time alone need it always.
func (w *watch) still(slot store.SlotStatus, s *session) bool {
	now := moment{s, slot.WALEnd, w.r.meter.Outcomes.Settled()}
	if now != w.whole {
		w.alike = 0
	}
	if w.alike > 1 && slot.Confirmed >= slot.WALEnd && w.rowsLeft == 0 && w.r.c.Outbox.Retention == 0 &&
		time.Since(w.wholeAt) < stillEvery {
		return true
	}
	w.whole, w.wholeAt = now, time.Now()
	w.alike++
	return false
}

func (t *term) watch(ctx context.Context) {
	w := &watch{r: t.r, term: t, look: min(slotEvery, t.lease.Valid()/3)}
	ticker := time.NewTicker(min(progressEvery, w.look))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.step(ctx)
		case <-t.lease.Wanted():
			bounded, cancel := context.WithTimeout(ctx, slotEvery)
			w.lookAtSlot(bounded, t.session.Load())
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// step does what is due.
func (w *watch) step(ctx context.Context) {
	w.term.noteMoves(&w.moved)
	w.term.noteBroker(&w.away)
	s := w.term.session.Load()
	if time.Since(w.looked) >= w.look && (s != nil || w.r.health.Role() != RoleStandby) {
		w.looked = time.Now()
		w.lookAtDatabase(ctx, s)
	}
	if s != nil && time.Since(w.clocked) >= clockEvery {
		w.clocked = time.Now()
		w.term.keepClock(ctx)
	}
	if s != nil && w.r.blockers.Due() {
		owner := w.term.owner()
		owner.heed(w.r.blockers.Look(ctx, w.r.store))
	}
	role := w.r.health.Role()
	if s == nil {
		return
	}
	if role == RoleActive || role == RoleCatchUp {
		w.saveProgress(ctx, s, role)
	}
	w.term.lookForArrived(s)
	due := time.Since(w.compared) >= time.Duration(w.r.c.Drift.Interval) || s.suspect.Swap(false)
	if due && (role == RoleActive || s.taking()) {
		w.compared = time.Now()
		w.term.lookForDrift(ctx, s)
	}
}

// saveProgress writes how far the topics and the stream are recorded, only after events: confirming keepalives is no
// reason to write, or an idle relay would keep itself busy with the WAL of its own notes. The topics go on while one
// event, or a catch-up, holds back the position.
func (w *watch) saveProgress(ctx context.Context, s *session, role Role) {
	n := w.r.meter.Outcomes.Settled()
	if n != w.seen {
		w.seen, w.changed = n, time.Now()
	}
	if n == w.settled && !w.deletes(time.Since(w.changed)) || time.Since(w.wrote) < progressEvery {
		return
	}
	w.wrote = time.Now()
	if w.of != s {
		w.of, w.saved = s, 0
	}
	_, open := s.ledger.Oldest() // before Confirmed: events are counted a little before the ledger has them
	at := s.ledger.Confirmed()
	err := w.term.saveOffsets(ctx)
	if err == nil && role == RoleActive && at > w.saved {
		if err = w.r.store.SaveProgress(ctx, at); err == nil {
			w.saved = at
			if !open {
				w.settled = n
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		s.heed(err)
		w.r.log.Debug().Err(err).Msg("cannot save progress")
	}
}

// count counts what is stored as long as there is a session. The watch does not: with many parked events it takes
// seconds, and without a proof of the lease nothing is sent.
func (t *term) count(ctx context.Context) {
	ticker, next := time.NewTicker(progressEvery), time.Time{}
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if began := time.Now(); t.session.Load() != nil && !began.Before(next) {
				t.countStored(ctx)
				next = began.Add(max(storedEvery, countRests*time.Since(began)))
			}
		case <-ctx.Done():
			return
		}
	}
}

// countStored refreshes what is known of dead letters and parked events; people and other processes change them, too.
func (t *term) countStored(ctx context.Context) {
	owner := t.owner()
	n, err := t.r.store.CountDead(ctx)
	if err == nil {
		t.r.meter.Database.OpenDead.Set(n)
	} else {
		t.r.meter.Database.OpenDead.Unread()
	}
	owner.heed(err)
	if t.r.Parked() == 0 {
		t.r.meter.Database.OldestParked(time.Time{})
		return
	}
	at, err := t.r.store.OldestParked(ctx)
	if err == nil && !at.IsZero() {
		if s := t.session.Load(); s != nil {
			at = at.Add(-time.Duration(s.ahead.Load())) // by our clock
		}
		t.r.meter.Database.OldestParked(at)
	}
	owner.heed(err)
}

// deletableAfter is the time after the last event during which its position is still noted: its journal row lies behind
// it in the WAL.
const deletableAfter = 10 * time.Second

// deletes reports whether rows wait to be deleted, the last of them journaled so long ago: they do so only below the
// position that is saved.
func (w *watch) deletes(quiet time.Duration) bool {
	if w.r.c.Outbox.AfterPublish == config.AfterPublishDelete {
		return w.rowsLeft > 0
	}
	return w.r.c.Outbox.Retention > 0 && quiet < deletableAfter
}

// saveOffsets notes how far the topics are recorded. It may be behind the truth at any time, as the position that is
// saved may be: a start after a crash then only looks at more.
func (t *term) saveOffsets(ctx context.Context) error {
	for _, b := range t.settler.TakeBehind() {
		t.r.raiseBehind(b)
	}
	offsets := t.settler.TakeOffsets()
	err := t.r.store.SaveOffsets(ctx, offsets)
	if err != nil {
		t.settler.GiveBackOffsets(offsets)
	}
	return err
}

const (
	// arrivedPatience is how long a record that arrived late waits for its event to be sent: most are in flight. The
	// others are parked, or no events any more.
	arrivedPatience = 30 * time.Second
	// arrivedEvery is the least time between two terms that end for that, should something go on to write such records.
	arrivedEvery = 10 * time.Minute
)

// unclaimed is the topic with a record of ours, found since it was read back, that none of those in flight has turned
// out to be, and since when it is known; zero: there is none.
func (r *Relay) unclaimed() (topic string, since time.Time) {
	if driver, finds := r.driver.(sink.Recognizer); finds {
		return driver.Unclaimed()
	}
	return "", time.Time{}
}

// lookForArrived ends the term when a topic has such a record though what was in flight has been sent. Until it is
// recorded the topic's offsets that are saved stay in front of it, and a start reads back ever more.
func (t *term) lookForArrived(s *session) {
	topic, since := t.r.unclaimed()
	if since.IsZero() || time.Since(since) < arrivedPatience || time.Since(t.r.arrived) < arrivedEvery ||
		t.engine.Status().State != sink.OK {
		return
	}
	t.r.arrived = time.Now()
	s.fail(fmt.Errorf("%w: in %s", restart.ErrArrived, topic))
}

// lookAtSlot renews the session's lease, or ends the session if another connection holds the slot. Nil: it could not
// look.
func (w *watch) lookAtSlot(ctx context.Context, s *session) *store.SlotStatus {
	asked, owner := time.Now(), w.term.owner()
	slot, err := w.r.store.Slot(ctx)
	if err != nil {
		owner.heed(err)
		return nil
	}
	w.r.meter.Database.Looked(slot, asked)
	if s != nil {
		w.term.checkLease(s, s == owner, slot, asked)
	}
	return &slot
}

// lookAtDatabase refreshes the lease, and what the metrics show of the slot and the mirror. Without a session it goes
// on to look at the slot: WAL is kept while the relay is halted, too.
func (w *watch) lookAtDatabase(ctx context.Context, s *session) {
	bounded, cancel := context.WithTimeout(ctx, slotEvery)
	defer cancel()
	asked, owner := time.Now(), w.term.owner()
	slot := w.lookAtSlot(bounded, s)
	if slot == nil || s == nil {
		return
	}
	w.term.considerSpool(s, *slot)
	if w.still(*slot, s) {
		return
	}
	if sender, err := w.r.store.Walsender(bounded, uint32(s.grant.PID)); err != nil {
		w.whole = moment{}
		owner.heed(err)
	} else {
		w.r.meter.Database.LookedAtSender(meter.SenderLook{Walsender: sender, At: asked, End: slot.WALEnd,
			Events: s.events.Load(), Takes: s.takes.Load(), PID: s.grant.PID})
	}
	n, age, err := w.r.store.MirrorLag(bounded)
	if err != nil {
		w.whole = moment{}
		w.r.meter.Database.MirrorUnread()
		owner.heed(err)
		return
	}
	w.r.meter.Database.Mirrored(n, age)
	w.rowsLeft = n
}

// slowClock bounds the server's answer time for the answer to be worth more than the one before: it
// is wrong by up to half of that.
const slowClock = meter.OldAge / 10

// setClock learns how much the server's clock is ahead of ours, or a clock that is wrong by a second would cost each
// event as much as being behind by a second.
func (s *session) setClock(ctx context.Context) error {
	ahead, _, err := s.r.compareClocks(ctx)
	s.ahead.Store(int64(ahead))
	return err
}

// keepClock does it again: either clock may be set while a session lives.
func (t *term) keepClock(ctx context.Context) {
	s := t.owner()
	if s == nil {
		return
	}
	switch ahead, took, err := t.r.compareClocks(ctx); {
	case err != nil:
		s.heed(err)
	case took < slowClock:
		s.ahead.Store(int64(ahead))
	}
}

func (r *Relay) compareClocks(ctx context.Context) (ahead, took time.Duration, err error) {
	before := time.Now()
	server, err := r.store.Clock(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the server's clock: %w", err)
	}
	took = time.Since(before)
	return server.Sub(before.Add(took / 2)), took, nil
}

// driftPatience bounds one look at publication and table.
const driftPatience = 5 * time.Second

// lookForDrift ends the session with a halt when the publication or the table is no longer what events come through.
// The server goes on to send keepalives then, and confirming them would lose, without a sign, every row that it leaves
// out. After the repair the table comes first: see Setup.
func (t *term) lookForDrift(ctx context.Context, s *session) {
	bounded, cancel := context.WithTimeout(ctx, driftPatience)
	defer cancel()
	owner := t.owner()
	table, err := t.r.setup().Drift(bounded, s.state)
	if table.OIDs != nil {
		t.r.reconciler.Covers(table.OIDs)
	}
	owner.heed(err)
	if stop := halt.Of(err); stop != nil && t.session.Load() == s {
		t.noteLeftOut(bounded, stop)
		s.fail(stop)
	}
	if t.r.outboxes != nil && err == nil && owner == s {
		if name := t.r.outboxes.Right(); name != "" {
			s.fail(fmt.Errorf("%w: %s", restart.ErrRight, name))
		}
	}
}

// noteLeftOut commits that the stream may have left rows out since the last look: once the cause is repaired, the table
// comes first.
func (t *term) noteLeftOut(ctx context.Context, why *halt.Error) {
	switch why.Code {
	case halt.Publication, halt.Column, halt.OtherTable:
		if err := t.r.store.BeginCatchUp(ctx, true); err != nil {
			t.r.log.Warn().Err(err).Msg("cannot note that the stream has left rows out; the reconciler will find them")
		}
	}
}

// repaired reports whether the cause of a session's end is gone, which was what the slot holds: then the next session
// may make a new slot.
func (r *Relay) repaired(ctx context.Context, err error) bool {
	bounded, cancel := context.WithTimeout(ctx, driftPatience)
	defer cancel()
	return r.setup().Repaired(bounded, err)
}

// checkLease takes the server's word on who streams from the slot, asked at the given time. If it is not this session,
// which had taken over before it was asked, another relay may have the slot, and the session ends: a stream that is
// not being read, because a catch-up is under way or the window is full, does not tell.
func (t *term) checkLease(s *session, owned bool, slot store.SlotStatus, asked time.Time) {
	switch {
	case t.session.Load() != s:
	case slot.Active && int64(slot.ActivePID) == s.grant.PID:
		t.lease.Prove(asked)
	case !owned: // TakeOver says why
	case slot.Active:
		s.lose(restart.ErrTakenOver)
	default:
		s.lose(restart.ErrNotStreaming)
	}
}
