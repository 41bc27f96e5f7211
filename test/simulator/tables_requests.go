package simulator

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// request is a person's request.
type request struct {
	store.Request
	slot string
}

// asked are tables with requests. Looking for them takes a call four times a second, so that runs in which no one asks
// for anything go without.
type asked struct{ *tables }

// someDead is how many dead letters one call resolves, so that a request takes more than one.
const someDead = 2

// NextRequest is the one to be worked at.
func (t asked) NextRequest(ctx context.Context) (next *store.Request, err error) {
	err = t.do(ctx, "next request", func(db *database) error {
		for turn := range lastTurn + 1 { // as package store orders them
			for _, r := range db.requests {
				if next == nil && r.slot == t.slot && r.FinishedAt == nil && turnOf(r.Kind) == turn {
					found := r.Request
					next = &found
				}
			}
		}
		return nil
	})
	return next, err
}

const lastTurn = 2

func turnOf(kind string) int {
	switch kind {
	case store.RequestPause, store.RequestResume:
		return 0
	case store.RequestReconcile, store.RequestRepublish:
		return lastTurn
	}
	return 1
}

func (db *database) request(id int64) *request { return db.requests[id-1] }

// StartRequest notes that work begins, and how much of it there is.
func (t asked) StartRequest(ctx context.Context, r *store.Request) error {
	return t.fenced(ctx, "start request", func(db *database) error {
		kept := db.request(r.ID)
		if kept.StartedAt == nil {
			now := clock()
			kept.StartedAt = &now
		}
		if kept.Total == nil {
			total := t.concerned(db, r)
			kept.Total = &total
		}
		r.StartedAt, r.Total = kept.StartedAt, kept.Total
		t.durable()
		return nil
	})
}

// concerned is how much there is to be done for the request.
func (t *tables) concerned(db *database, r *store.Request) int64 {
	switch r.Kind {
	case store.RequestReplay, store.RequestDiscard:
		return int64(len(t.matching(db, r)))
	case store.RequestRetry:
		return int64(len(t.retriable(db, r)))
	case store.RequestReconcile:
		return 0
	case store.RequestRepublish:
		return int64(len(r.Filter.IDs))
	}
	return 1
}

// FinishRequest closes it.
func (t asked) FinishRequest(ctx context.Context, id int64, failed string) error {
	return t.fenced(ctx, "finish request", func(db *database) error {
		t.finish(db, id, failed)
		t.durable()
		return nil
	})
}

// NoteRequest counts what a request concerns and has done.
func (t asked) NoteRequest(ctx context.Context, id, total, done int64) error {
	return t.fenced(ctx, "note request", func(db *database) error {
		db.request(id).Total, db.request(id).Done = &total, done
		t.durable()
		return nil
	})
}

func (t *tables) finish(db *database, id int64, failed string) {
	now := clock()
	r := db.request(id)
	if r.FinishedAt != nil {
		return
	}
	if r.Kind == store.RequestRepublish {
		t.w.judgeRepublished(t, r)
	}
	if r.StartedAt == nil {
		r.StartedAt = &now
	}
	r.FinishedAt, r.Error = &now, failed
	t.w.counts.Requests++
	t.w.note("p%d has done request %d, %s%s", t.p.number, id, r.Kind, failed)
	// Nothing of it may be left to try; a look at the whole ends at a table that is gone by then.
	may := r.Kind == store.RequestRetry || r.Kind == store.RequestReconcile && t.w.profile.goes
	if failed != "" && !may && !t.w.unjudged {
		t.w.violate("p%d refuses request %d: %s", t.p.number, id, failed)
	}
}

// fits reports whether the filter means the event.
func fits(f store.Filter, key []byte, id []byte) bool {
	switch {
	case f.Key != nil:
		return key != nil && *f.Key == string(key)
	case len(f.IDs) > 0:
		return slices.Contains(f.IDs, string(id))
	}
	return f.All
}

// matching are the dead letters that the request means and has not taken, in the order of positions.
func (t *tables) matching(db *database, r *store.Request) (found []recorded) {
	for at, d := range db.dead {
		if t.covers(at.source) && db.open(at, d) && !d.at.After(r.RequestedAt) && fits(r.Filter, d.key, d.event.ID) &&
			(r.Kind != store.RequestReplay || d.replay != r.ID) {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b recorded) int {
		return cmp.Or(db.dead[a].event.Position.Compare(db.dead[b].event.Position), cmp.Compare(db.dead[a].number,
			db.dead[b].number))
	})
	return found
}

// step resolves the next dead letters of a request.
func (t *tables) step(ctx context.Context, name string, r *store.Request, from store.DeadCursor, limit int,
	do func(db *database, at recorded, d *deadRow, step *store.Step)) (step store.Step, err error) {
	err = t.fenced(ctx, name, func(db *database) error {
		found := slices.DeleteFunc(t.matching(db, r), func(at recorded) bool {
			return from.Set && db.dead[at].event.Position.Compare(from.Position) <= 0
		})
		step.Next = from
		for _, at := range found[:min(limit, len(found), someDead)] {
			step.Seen++
			step.Next.Set, step.Next.Position = true, db.dead[at].event.Position
			do(db, at, db.dead[at], &step)
		}
		db.request(r.ID).Done += int64(step.Seen)
		t.durable()
		return nil
	})
	return step, err
}

// ReplayDead parks dead letters again.
func (t asked) ReplayDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	return t.step(ctx, "replay", r, from, limit, func(db *database, at recorded, d *deadRow, step *store.Step) {
		d.replay = r.ID
		if _, journaled := db.journal[at]; journaled {
			d.replayed = true
			return
		}
		if db.stopped(at, d, r) {
			t.w.counts.StayedBehind++
			return
		}
		db.arrivals++
		db.parked[at] = &parkedRow{
			event: cloneEvent(&d.event), topic: d.topic, key: bytes.Clone(d.key), class: outbox.Transient, arrival: db.arrivals,
			due:   clock(),
			tried: d.at, replay: r.ID,
		}
		step.Parked++
		t.w.counts.Replayed++
		t.w.note("p%d replays %s", t.p.number, at.id)
	})
}

// DiscardDead closes dead letters.
func (t asked) DiscardDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	return t.step(ctx, "discard", r, from, limit, func(_ *database, at recorded, d *deadRow, step *store.Step) {
		d.discarded = true
		if d.key != nil {
			step.Lanes = append(step.Lanes, store.Lane{Source: t.eventSource(), Topic: d.topic, Key: bytes.Clone(d.key)})
		}
		t.w.note("p%d discards %s", t.p.number, at.id)
	})
}

// retriable are the parked events that wait for a time and that the request means: those that it names, and the others
// of their lanes.
func (t *tables) retriable(db *database, r *store.Request) (found []*parkedRow) {
	now := clock()
	named := func(p *parkedRow) bool {
		for at, q := range db.parked {
			if t.covers(at.source) && fits(r.Filter, q.key, q.event.ID) && (q == p ||
				q.topic == p.topic && q.key != nil && bytes.Equal(q.key, p.key)) {
				return true
			}
		}
		return false
	}
	for at, p := range db.parked {
		if t.covers(at.source) && p.due.After(now) && !p.tried.After(r.RequestedAt) && named(p) {
			found = append(found, p)
		}
	}
	return found
}

// RetryNow makes parked events due.
func (t asked) RetryNow(ctx context.Context, r *store.Request, limit int) (n int64, err error) {
	err = t.fenced(ctx, "retry now", func(db *database) error {
		now := clock()
		for _, p := range t.retriable(db, r) {
			if n < int64(limit) {
				p.due = now
				n++
			}
		}
		db.request(r.ID).Done += n
		r.Done += n
		t.durable()
		if n == 0 && r.Total != nil && *r.Total == 0 && r.Done == 0 {
			return store.ErrCannot
		}
		return nil
	})
	return n, err
}

// SetPause pauses or resumes.
func (t asked) SetPause(ctx context.Context, r *store.Request) (now *store.Pause, err error) {
	err = t.fenced(ctx, "set pause", func(db *database) error {
		switch {
		case r.Kind == store.RequestResume:
			delete(db.pauses, t.slot)
		case db.pauses[t.slot] == nil:
			db.pauses[t.slot] = &store.Pause{Since: clock(), By: r.Who}
		}
		now = db.pauses[t.slot]
		if of := db.request(r.ID); of.FinishedAt == nil {
			at, one := clock(), int64(1)
			of.StartedAt, of.Total, of.Done = &at, &one, 1
		}
		t.finish(db, r.ID, "")
		t.durable()
		return nil
	})
	return now, err
}

// Paused reports whether it is paused.
func (t asked) Paused(ctx context.Context) (now *store.Pause, err error) {
	err = t.do(ctx, "paused", func(db *database) error {
		now = db.pauses[t.slot]
		return nil
	})
	return now, err
}
