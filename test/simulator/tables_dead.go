package simulator

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// deadRow is a dead letter.
type deadRow struct {
	number              int // of the dead letters so far
	event               outbox.Event
	topic               string
	key                 []byte
	attempts            int
	class               outbox.ErrorClass
	code                string
	at                  time.Time
	keeps               bool // its lane waits for a person
	replayed, discarded bool
	replay              int64 // the last request that took it
}

// open reports that nothing has become of the dead letter: neither replayed, nor discarded, nor on its way to be
// published.
func (db *database) open(at recorded, d *deadRow) bool {
	return !d.replayed && !d.discarded && db.parked[at] == nil
}

func (db *database) holds(at recorded, d *deadRow) bool { return d.keeps && db.open(at, d) }

// heldByDead reports whether a dead letter of the lane holds it; with a position, one in front of that.
func (t *tables) heldByDead(db *database, source int32, topic string, key []byte, before *outbox.Position) bool {
	if !t.hold {
		return false
	}
	for at, d := range db.dead {
		if at.source == source && d.topic == topic && bytes.Equal(d.key, key) && db.holds(at, d) &&
			(before == nil || d.event.Position.Compare(*before) < 0) {
			return true
		}
	}
	return false
}

// free reports that no dead letter keeps the parked event waiting.
func (t *tables) free(db *database, at recorded, p *parkedRow) bool {
	return p.key == nil || !t.heldByDead(db, at.source, p.topic, p.key, &p.event.Position)
}

func (t *tables) bury(db *database, dead *store.Dead) {
	at := t.at(dead.Event.Source, dead.Event.ID)
	if db.dead[at] != nil {
		return
	}
	db.deaths++
	db.dead[at] = &deadRow{
		number: db.deaths, event: cloneEvent(dead.Event), topic: dead.Topic, key: bytes.Clone(dead.Key),
		attempts: dead.Attempts, class: dead.Class, code: dead.Code,
		at: clock(), keeps: dead.Holds,
	}
	t.w.counts.Dead++
	t.w.judgeDead(t, dead)
}

// GiveUp makes a parked event a dead letter, or the one again that it was.
func (t *tables) GiveUp(ctx context.Context, dead store.Dead) (behind int64, err error) {
	err = t.fenced(ctx, "give up", func(db *database) error {
		row, at := t.unpark(db, dead.Event.Source, dead.Event.ID), t.at(dead.Event.Source, dead.Event.ID)
		switch {
		case row == nil:
		case row.replay != 0 && db.dead[at] != nil:
			d := db.dead[at]
			d.attempts, d.class, d.code, d.at = d.attempts+dead.Attempts, dead.Class, dead.Code, clock()
			d.keeps, d.replayed, d.discarded = dead.Holds, false, false
			t.w.counts.DiedAgain++
			t.w.judgeDead(t, &dead)
			behind = t.takeBack(db, &dead)
		default:
			t.bury(db, &dead)
		}
		t.durable()
		return nil
	})
	return behind, err
}

// takeBack has the dead letters that are replayed behind one that died again stay what they are.
func (t *tables) takeBack(db *database, dead *store.Dead) (behind int64) {
	if !dead.Stops || dead.Key == nil || t.w.mutant == followersGo {
		return 0
	}
	of := t.at(dead.Event.Source, nil)
	for at, p := range db.parked {
		d := db.dead[at]
		if at.source == of.source && p.topic == dead.Topic && bytes.Equal(p.key, dead.Key) && p.key != nil && p.replay != 0 &&
			p.event.Position.Compare(dead.Event.Position) > 0 && d != nil && !d.replayed && !d.discarded {
			delete(db.parked, at)
			behind++
			t.w.note("p%d takes the replay of %s back", t.p.number, at.id)
		}
	}
	t.w.counts.StayedBehind += int(behind)
	return behind
}

// stopped reports that an earlier dead letter of the lane, which the request took, has died again.
func (db *database) stopped(of recorded, d *deadRow, r *store.Request) bool {
	for at, e := range db.dead {
		if at.source == of.source && e.replay == r.ID && e.at.After(r.RequestedAt) && !e.keeps && db.open(at, e) &&
			e.topic == d.topic && d.key != nil && bytes.Equal(e.key, d.key) &&
			e.event.Position.Compare(d.event.Position) < 0 {
			return true
		}
	}
	return false
}

// breakerState is the stored state of dlq.breaker.
type breakerState struct {
	open    bool
	opened  bool // ever
	said    string
	resumed time.Time
}

func (t *tables) breaker(db *database) *breakerState {
	b := db.breakers[t.slot]
	if b == nil {
		b = &breakerState{}
		db.breakers[t.slot] = b
	}
	return b
}

// Breaker reads the state of dlq.breaker.
func (t *tables) Breaker(ctx context.Context, window time.Duration,
	apart []string) (st store.BreakerState, err error) {
	err = t.do(ctx, "breaker", func(db *database) error {
		b := t.breaker(db)
		st.Open, st.Said = b.open, b.said
		since := clock().Add(-window.Truncate(time.Microsecond))
		if b.resumed.After(since) {
			since = b.resumed
		}
		for at, d := range db.dead {
			if t.covers(at.source) && !d.replayed && !d.discarded && d.at.After(since) &&
				!slices.Contains(apart, d.code) {
				st.Dead++
			}
		}
		for _, j := range db.batches {
			if (j.source == t.source || slices.Contains(t.members, j.source)) && j.at.After(since) {
				st.Published += int64(len(j.ids))
			}
		}
		return nil
	})
	return st, err
}

// OpenBreaker notes that it is open.
func (t *tables) OpenBreaker(ctx context.Context, said string) error {
	return t.fenced(ctx, "open breaker", func(db *database) error {
		b := t.breaker(db)
		b.open, b.opened, b.said = true, true, said
		t.w.counts.BreakerOpened++
		t.durable()
		t.w.note("p%d: the breaker is open", t.p.number)
		return nil
	})
}

// CloseBreaker notes that it is closed.
func (t *tables) CloseBreaker(ctx context.Context) error {
	return t.fenced(ctx, "close breaker", func(db *database) error {
		b := t.breaker(db)
		b.open, b.said, b.resumed = false, "", clock()
		t.durable()
		t.w.note("p%d: the breaker is closed", t.p.number)
		return nil
	})
}
