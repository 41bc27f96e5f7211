package simulator

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// setDue sets when the event is due, as store.Parked.RetryIn says.
func (p *parkedRow) setDue(in time.Duration) {
	p.due, p.whenWell = time.Time{}, in == store.WhenWell
	if in >= 0 {
		p.due = clock().Add(in.Truncate(time.Microsecond))
	}
}

// Park stores events aside.
func (t *tables) Park(ctx context.Context, events []store.Parked) (parked int64, err error) {
	err = t.fenced(ctx, "park", func(db *database) error {
		for i := range events {
			e := &events[i]
			at := t.at(e.Event.Source, e.Event.ID)
			if _, journaled := db.journal[at]; journaled || db.dead[at] != nil {
				continue
			}
			if t.w.mutant == deletedIsDone {
				if r := t.w.server.rowIn(t.of(e.Event.Source), e.Event.ID); r != nil && r.deleted {
					continue
				}
			}
			if db.parked[at] != nil {
				if t.w.mutant != parkedTwice {
					continue
				}
				at.id += "/again"
			}
			db.arrivals++
			row := &parkedRow{
				event: cloneEvent(e.Event), topic: e.Topic, key: bytes.Clone(e.Key), attempts: e.Attempts, class: e.Class,
				arrival: db.arrivals, late: e.Late, tried: clock(),
			}
			row.setDue(e.RetryIn)
			db.parked[at] = row
			parked++
			t.w.counts.Parked++
			t.w.note("p%d parks %s of %s/%s, %d attempts, in %v", t.p.number, at.id, e.Topic, string(e.Key), e.Attempts,
				e.RetryIn)
			t.w.judgeAttempts(t, e.Event.Source, e.Event.ID, e.Attempts, "parked")
			defer t.w.parksBehindOthers(t, e.Event)
		}
		t.durable()
		return nil
	})
	return parked, err
}

// unpark takes the event out; nil: it was not parked.
func (t *tables) unpark(db *database, source int32, id []byte) *parkedRow {
	at := t.at(source, id)
	row := db.parked[at]
	delete(db.parked, at)
	return row
}

// RetryLater notes failed attempts.
func (t *tables) RetryLater(ctx context.Context, failed []store.Attempt) error {
	return t.fenced(ctx, "retry later", func(db *database) error {
		for _, f := range failed {
			if p := db.parked[t.at(f.Source, f.ID)]; p != nil {
				p.attempts, p.class, p.tried = f.Attempts, f.Class, clock()
				p.setDue(f.RetryIn)
				t.w.judgeAttempts(t, f.Source, f.ID, f.Attempts, "retried")
			}
		}
		t.durable()
		return nil
	})
}

// ParkedLanes lists lanes with parked events.
func (t *tables) ParkedLanes(ctx context.Context) (lanes []store.Lane, events int64, err error) {
	err = t.do(ctx, "parked lanes", func(db *database) error {
		seen := map[string]bool{}
		for at, p := range db.parked {
			if !t.covers(at.source) {
				continue
			}
			events++
			if name := laneOf(at, p); p.key != nil && !seen[name] {
				seen[name] = true
				lanes = append(lanes, t.lane(at, p.topic, p.key))
			}
		}
		for at, d := range db.dead {
			if t.hold && t.covers(at.source) && db.holds(at, d) {
				lanes = append(lanes, t.lane(at, d.topic, d.key))
			}
		}
		return nil
	})
	return lanes, events, err
}

// ParkedAmong finds the lanes of those that are parked at their places.
func (t *tables) ParkedAmong(ctx context.Context, events []store.Sighting) (map[int]store.Lane, error) {
	found := map[int]store.Lane{}
	err := t.do(ctx, "parked among", func(db *database) error {
		for i, e := range events {
			p := db.parked[t.at(e.Source, e.ID)]
			if p != nil && (e.Position.Order == 0 || sameEvent(p.event.Position, e.Position)) {
				found[i] = store.Lane{Source: e.Source, Topic: p.topic, Key: bytes.Clone(p.key)}
			}
		}
		return nil
	})
	return found, err
}

// sameEvent compares places; a message does not tell the epoch of one in the stream.
func sameEvent(a, b outbox.Position) bool {
	if !a.Table && !b.Table {
		a.Epoch, b.Epoch = 0, 0
	}
	return a == b
}

// CountParked counts them.
func (t *tables) CountParked(ctx context.Context) (n int64, err error) {
	err = t.do(ctx, "count parked", func(db *database) error {
		for at := range db.parked {
			if t.covers(at.source) {
				n++
			}
		}
		return nil
	})
	return n, err
}

// heads are the first parked events of each lane with a key.
func (t *tables) heads(db *database) map[string]recorded {
	heads := map[string]recorded{}
	for at, p := range db.parked {
		if !t.covers(at.source) || p.key == nil {
			continue
		}
		name := laneOf(at, p)
		if h := db.parked[heads[name]]; h == nil || p.event.Position.Compare(h.event.Position) < 0 {
			heads[name] = at
		}
	}
	return heads
}

// laneOf tells lanes of parked events apart.
func laneOf(at recorded, p *parkedRow) string {
	return fmt.Sprintf("%d/%s/%s", at.source, p.topic, p.key)
}

// lane is a lane of what is recorded there. The only outbox of a slot is called by no number.
func (t *tables) lane(at recorded, topic string, key []byte) store.Lane {
	l := store.Lane{Topic: topic, Key: bytes.Clone(key)}
	if t.members != nil {
		l.Source = at.source
	}
	return l
}

// DueLanes lists lanes that are due.
func (t *tables) DueLanes(ctx context.Context, limit int,
	without []string) (lanes []store.Lane, next time.Duration, err error) {
	next = -1
	err = t.do(ctx, "due lanes", func(db *database) error {
		now := clock()
		var due []recorded
		keyless := map[string]bool{}
		for at, p := range db.parked {
			if !t.covers(at.source) {
				continue
			}
			if p.due.After(now) && (next < 0 || p.due.Sub(now) < next) {
				next = p.due.Sub(now)
			}
			switch {
			case !p.isDue() || slices.Contains(without, p.topic):
			case p.key == nil:
				if name := laneOf(at, p); !keyless[name] {
					keyless[name] = true
					lanes = append(lanes, t.lane(at, p.topic, nil))
				}
			case !t.behindLater(db, at, p, now) && t.free(db, at, p):
				due = append(due, at)
			}
		}
		slices.SortFunc(due, func(a, b recorded) int {
			return cmp.Or(db.parked[a].due.Compare(db.parked[b].due), cmp.Compare(db.parked[a].arrival, db.parked[b].arrival))
		})
		for _, at := range due[:min(limit, len(due))] {
			lanes = append(lanes, t.lane(at, db.parked[at].topic, db.parked[at].key))
		}
		return nil
	})
	return lanes, next, err
}

// behindLater reports whether an event in front of it has a time that has not come.
func (t *tables) behindLater(db *database, of recorded, p *parkedRow, now time.Time) bool {
	for at, q := range db.parked {
		if at.source == of.source && q.topic == p.topic && q.key != nil && bytes.Equal(q.key, p.key) &&
			(q.due.After(now) || q.whenWell) && q.event.Position.Compare(p.event.Position) < 0 {
			return true
		}
	}
	return false
}

// portionMost cuts lanes into portions: they are too short here to be cut by the relay's own bounds.
const portionMost = 3

// Portions are the first events of each lane, or those behind where it was read to.
func (t *tables) Portions(ctx context.Context, asks []store.Ask, limit, _ int) (portions []store.Portion, err error) {
	err = t.do(ctx, "portions", func(db *database) error {
		for _, ask := range asks {
			portion := store.Portion{Lane: ask.Lane}
			of := t.at(ask.Lane.Source, nil)
			if ask.Lane.Source != asks[0].Lane.Source {
				break // those of one outbox are read
			}
			for _, p := range db.lane(of.source, ask.Lane, t.w.mutant) {
				if ask.After != nil && p.event.Position.Compare(*ask.After) <= 0 || !t.free(db, of, p) {
					continue
				}
				if portion.More = len(portion.Rows)+1 >= min(limit, portionMost); len(portion.Rows) == min(limit, portionMost) {
					break
				}
				due := p.isDue() || p.due.IsZero() && !p.whenWell
				event := cloneEvent(&p.event)
				event.Source = ask.Lane.Source
				portion.Rows = append(portion.Rows,
					store.ParkedRow{Event: event, Attempts: p.attempts, Due: due, Late: p.late, Replay: p.replay != 0})
			}
			portion.Held = len(portion.Rows) == 0 && ask.Lane.Key != nil &&
				t.heldByDead(db, of.source, ask.Lane.Topic, ask.Lane.Key, nil)
			portions = append(portions, portion)
		}
		return nil
	})
	return portions, err
}

// WakeHeads makes heads due that have no time.
func (t *tables) WakeHeads(ctx context.Context) error {
	return t.fenced(ctx, "wake heads", func(db *database) error {
		for _, at := range t.heads(db) {
			if h := db.parked[at]; h.due.IsZero() && !h.whenWell && t.free(db, at, h) {
				h.due = clock()
			}
		}
		t.durable()
		return nil
	})
}

// WaitingTopics are those that parked events wait for.
func (t *tables) WaitingTopics(ctx context.Context) (waiting []store.WaitingTopic, err error) {
	var topics []string
	err = t.do(ctx, "waiting topics", func(db *database) error {
		for at, p := range db.parked {
			if t.covers(at.source) && p.whenWell && !slices.Contains(topics, p.topic) {
				topics = append(topics, p.topic)
			}
		}
		slices.Sort(topics)
		return nil
	})
	for _, topic := range topics {
		waiting = append(waiting, store.WaitingTopic{Topic: topic})
	}
	return waiting, err
}

// MakeDue makes due what waits for the topic.
func (t *tables) MakeDue(ctx context.Context, topic string) (more bool, err error) {
	err = t.fenced(ctx, "make due", func(db *database) error {
		for at, p := range db.parked {
			if t.covers(at.source) && p.topic == topic && p.whenWell {
				p.due, p.whenWell, more = clock(), false, true
			}
		}
		t.durable()
		return nil
	})
	return more, err
}

// Walsender shows nothing: the made-up server's is always as far as its clients let it be.
func (t *tables) Walsender(context.Context, uint32) (store.Walsender, error) {
	return store.Walsender{}, nil
}

// OldTransactions are none: each transaction of the made-up database ends.
func (t *tables) OldTransactions(context.Context, time.Duration) ([]store.Blocker, error) {
	return nil, nil
}
