package simulator

import (
	"context"
	"slices"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// twin is package store and the made-up tables at once: calls go to both, the real answers are
// returned, and a difference fails the run. What it does not have is made up: the publication, the migration, and
// the wait for transactions, which takes time.
type twin struct {
	*tables
	real *store.Store
}

// two are the results of a method that has two.
type two[A, B any] struct {
	A A
	B B
}

type doing[T any] = func(context.Context) (T, error)

// both runs a method of both. shown is the part of the answers that must be equal.
func both[T any](ctx context.Context, t twin, name string, reads bool, real, made doing[T],
	shown func(T) any) (T, error) {
	var got T
	c := &call{reads: reads}
	c.do = func(ctx context.Context) (err error) {
		got, err = real(ctx)
		return err
	}
	want, err := made(context.WithValue(ctx, callKey{}, c))
	if !c.begun {
		return want, err
	}
	if err == nil {
		if d := diff.Diff(shown(got), shown(want)); d != "" {
			t.w.mu.Lock()
			t.w.violate("p%d %s answers (- real, + made up):\n%s", t.p.number, name, d)
			t.w.mu.Unlock()
		}
	}
	return got, err
}

func all[T any](v T) any { return v }

// read and write are both for methods with one result; do is for those with none.
func read[T any](ctx context.Context, t twin, name string, real, made doing[T]) (T, error) {
	return both(ctx, t, name, true, real, made, all[T])
}

func write[T any](ctx context.Context, t twin, name string, real, made doing[T]) (T, error) {
	return both(ctx, t, name, false, real, made, all[T])
}

func do(ctx context.Context, t twin, name string, real, made func(context.Context) error) error {
	none := func(f func(context.Context) error) doing[bool] {
		return func(ctx context.Context) (bool, error) { return false, f(ctx) }
	}
	_, err := write(ctx, t, name, none(real), none(made))
	return err
}

// pair is a doing of a method with two results.
func pair[A, B any](f func(context.Context) (A, B, error)) doing[two[A, B]] {
	return func(ctx context.Context) (r two[A, B], err error) {
		r.A, r.B, err = f(ctx)
		return r, err
	}
}

func (t twin) Migrate(ctx context.Context) error {
	return do(ctx, t, "migrate", t.real.Migrate, t.tables.Migrate)
}

func (t twin) Outbox(ctx context.Context) (store.Outbox, error) {
	var real store.Outbox
	made, err := both(ctx, t, "outbox", true, func(ctx context.Context) (o store.Outbox, err error) {
		real, err = t.real.Outbox(ctx)
		return real, err
	}, t.tables.Outbox, func(o store.Outbox) any {
		return []any{o.OID, o.Schema, o.Name, o.IDType, o.PayloadType, o.HeadersType, o.HasPublishedAt, o.OrderBy,
			o.PublishedWhen}
	})
	made.Columns = columns // the stream's
	return made, err
}

func (t twin) Slot(ctx context.Context) (store.SlotStatus, error) {
	return both(ctx, t, "slot", true, t.real.Slot, t.tables.Slot, func(st store.SlotStatus) any {
		return []any{st.Exists, st.Active, st.ActivePID, st.Plugin, st.Confirmed, st.Restart, st.WALEnd, st.WALStatus}
	})
}

func shownState(st *store.State) any {
	if st == nil {
		return nil
	}
	same := *st
	same.UpdatedAt, same.FormerSystems = time.Time{}, nil
	return same
}

func (t twin) State(ctx context.Context) (*store.State, error) {
	return both(ctx, t, "state", true, t.real.State, t.tables.State, shownState)
}

func (t twin) Memories(ctx context.Context) ([]store.Memory, error) {
	return both(ctx, t, "memories", true, t.real.Memories, t.tables.Memories, func(m []store.Memory) any { return len(m) })
}

func (t twin) Register(ctx context.Context, system string, timeline int32, oid uint32,
	phase string) (*store.State, error) {
	return both(ctx, t, "register", false, func(ctx context.Context) (*store.State, error) {
		return t.real.Register(ctx, system, timeline, oid, phase)
	}, func(ctx context.Context) (*store.State, error) {
		return t.tables.Register(ctx, system, timeline, oid, phase)
	}, shownState)
}

func (t twin) TakeOver(ctx context.Context, pid uint32, timeline int32) (int64, bool, error) {
	r, err := write(ctx, t, "take over", pair(func(ctx context.Context) (int64, bool, error) {
		return t.real.TakeOver(ctx, pid, timeline)
	}), pair(func(ctx context.Context) (int64, bool, error) { return t.tables.TakeOver(ctx, pid, timeline) }))
	return r.A, r.B, err
}

func (t twin) SaveProgress(ctx context.Context, at outbox.LSN) error {
	return do(ctx, t, "save progress", func(ctx context.Context) error { return t.real.SaveProgress(ctx, at) },
		func(ctx context.Context) error { return t.tables.SaveProgress(ctx, at) })
}

func (t twin) CleanStop(ctx context.Context, at outbox.LSN) error {
	return do(ctx, t, "clean stop", func(ctx context.Context) error { return t.real.CleanStop(ctx, at) },
		func(ctx context.Context) error { return t.tables.CleanStop(ctx, at) })
}

func (t twin) Clock(ctx context.Context) (time.Time, error) {
	return read(ctx, t, "clock", t.real.Clock, t.tables.Clock)
}

func (t twin) EmitToken(ctx context.Context, prefix, content string) (outbox.LSN, error) {
	return read(ctx, t, "emit token", func(ctx context.Context) (outbox.LSN, error) {
		return t.real.EmitToken(ctx, prefix, content)
	}, func(ctx context.Context) (outbox.LSN, error) { return t.tables.EmitToken(ctx, prefix, content) })
}

func (t twin) Lookup(ctx context.Context, ids [][]byte) ([]bool, error) {
	return read(ctx, t, "look up", func(ctx context.Context) ([]bool, error) { return t.real.Lookup(ctx, ids) },
		func(ctx context.Context) ([]bool, error) { return t.tables.Lookup(ctx, ids) })
}

func (t twin) Recognize(ctx context.Context, events []store.Sighting) ([]store.Recognition, error) {
	return read(ctx, t, "recognize",
		func(ctx context.Context) ([]store.Recognition, error) { return t.real.Recognize(ctx, events) },
		func(ctx context.Context) ([]store.Recognition, error) { return t.tables.Recognize(ctx, events) })
}

func (t twin) Settle(ctx context.Context, published []store.Published, dead []store.Dead) error {
	return do(ctx, t, "settle", func(ctx context.Context) error { return t.real.Settle(ctx, published, dead) },
		func(ctx context.Context) error { return t.tables.Settle(ctx, published, dead) })
}

func (t twin) SettleRetried(ctx context.Context, published []store.Published) error {
	return do(ctx, t, "settle retried", func(ctx context.Context) error { return t.real.SettleRetried(ctx, published) },
		func(ctx context.Context) error { return t.tables.SettleRetried(ctx, published) })
}

func (t twin) Park(ctx context.Context, events []store.Parked) (int64, error) {
	return write(ctx, t, "park", func(ctx context.Context) (int64, error) { return t.real.Park(ctx, events) },
		func(ctx context.Context) (int64, error) { return t.tables.Park(ctx, events) })
}

func (t twin) RetryLater(ctx context.Context, failed []store.Attempt) error {
	return do(ctx, t, "retry later", func(ctx context.Context) error { return t.real.RetryLater(ctx, failed) },
		func(ctx context.Context) error { return t.tables.RetryLater(ctx, failed) })
}

func (t twin) GiveUp(ctx context.Context, dead store.Dead) (int64, error) {
	return write(ctx, t, "give up", func(ctx context.Context) (int64, error) { return t.real.GiveUp(ctx, dead) },
		func(ctx context.Context) (int64, error) { return t.tables.GiveUp(ctx, dead) })
}

// laneNames are lanes in the order of their names, each once: store gives some twice.
func laneNames(lanes []store.Lane) []string {
	names := []string{}
	for _, l := range lanes {
		names = append(names, line(l.Topic, l.Key))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t twin) ParkedLanes(ctx context.Context) ([]store.Lane, int64, error) {
	r, err := both(ctx, t, "parked lanes", true, pair(t.real.ParkedLanes), pair(t.tables.ParkedLanes),
		func(r two[[]store.Lane, int64]) any { return []any{laneNames(r.A), r.B} })
	return r.A, r.B, err
}

func (t twin) ParkedAmong(ctx context.Context, events []store.Sighting) (map[int]store.Lane, error) {
	return read(ctx, t, "parked among", func(ctx context.Context) (map[int]store.Lane, error) {
		return t.real.ParkedAmong(ctx, events)
	}, func(ctx context.Context) (map[int]store.Lane, error) { return t.tables.ParkedAmong(ctx, events) })
}

func (t twin) CountParked(ctx context.Context) (int64, error) {
	return read(ctx, t, "count parked", t.real.CountParked, t.tables.CountParked)
}

func (t twin) CountDead(ctx context.Context) (int64, error) {
	return read(ctx, t, "count dead", t.real.CountDead, t.tables.CountDead)
}

// DueLanes that are cut off by the limit may be others: those that are due since the same time have no order.
func (t twin) DueLanes(ctx context.Context, limit int, without []string) ([]store.Lane, time.Duration, error) {
	r, err := both(ctx, t, "due lanes", true, pair(func(ctx context.Context) ([]store.Lane, time.Duration, error) {
		return t.real.DueLanes(ctx, limit, without)
	}), pair(func(ctx context.Context) ([]store.Lane, time.Duration, error) {
		return t.tables.DueLanes(ctx, limit, without)
	}), func(r two[[]store.Lane, time.Duration]) any {
		r.B = max(r.B, -1)
		if len(r.A) >= limit {
			return []any{len(r.A), r.B}
		}
		return []any{laneNames(r.A), r.B}
	})
	return r.A, r.B, err
}

func (t twin) Portions(ctx context.Context, asks []store.Ask, limit, bytes int) ([]store.Portion, error) {
	limit = min(limit, portionMost)
	return both(ctx, t, "portions", true, func(ctx context.Context) ([]store.Portion, error) {
		return t.real.Portions(ctx, asks, limit, bytes)
	}, func(ctx context.Context) ([]store.Portion, error) { return t.tables.Portions(ctx, asks, limit, bytes) },
		func(portions []store.Portion) any {
			var shown []string
			for _, p := range portions {
				shown = append(shown, line(p.Lane.Topic, p.Lane.Key, p.More, p.Held))
				for _, r := range p.Rows {
					shown = append(shown, line(append(event(&r.Event), r.Event.ID, r.Event.CreatedAt, r.Attempts, r.Due, r.Late,
						r.Replay)...))
				}
			}
			if asks[0].Lane.Key == nil { // which have no order
				slices.Sort(shown)
			}
			return shown
		})
}

func (t twin) WakeHeads(ctx context.Context) error {
	return do(ctx, t, "wake heads", t.real.WakeHeads, t.tables.WakeHeads)
}

func (t twin) WaitingTopics(ctx context.Context) ([]store.WaitingTopic, error) {
	return both(ctx, t, "waiting topics", true, t.real.WaitingTopics, t.tables.WaitingTopics,
		func(waiting []store.WaitingTopic) any {
			var topics []string
			for _, w := range waiting {
				topics = append(topics, w.Topic)
			}
			return topics
		})
}

func (t twin) MakeDue(ctx context.Context, topic string) (bool, error) {
	return write(ctx, t, "make due", func(ctx context.Context) (bool, error) { return t.real.MakeDue(ctx, topic) },
		func(ctx context.Context) (bool, error) { return t.tables.MakeDue(ctx, topic) })
}

func (t twin) AddTopics(ctx context.Context, topics []string) error {
	return do(ctx, t, "add topics", func(ctx context.Context) error { return t.real.AddTopics(ctx, topics) },
		func(ctx context.Context) error { return t.tables.AddTopics(ctx, topics) })
}

func (t twin) SaveOffsets(ctx context.Context, offsets []store.Offset) error {
	return do(ctx, t, "save offsets", func(ctx context.Context) error { return t.real.SaveOffsets(ctx, offsets) },
		func(ctx context.Context) error { return t.tables.SaveOffsets(ctx, offsets) })
}

func (t twin) OpenSpool(ctx context.Context) (store.SpoolState, error) {
	return both(ctx, t, "open spool", false, t.real.OpenSpool, t.tables.OpenSpool, shownSpool)
}

func (t twin) Spooled(ctx context.Context) (store.SpoolState, error) {
	return both(ctx, t, "spooled", true, t.real.Spooled, t.tables.Spooled, shownSpool)
}

func shownSpool(st store.SpoolState) any {
	return []any{st.First, st.Last, st.Era, st.Ends, st.Events, micros(st.Oldest)}
}

func (t twin) Spool(ctx context.Context, r store.Spooled) error {
	return do(ctx, t, "spool", func(ctx context.Context) error { return t.real.Spool(ctx, r) },
		func(ctx context.Context) error { return t.tables.Spool(ctx, r) })
}

func (t twin) NextSpooled(ctx context.Context, after int64) (store.Spooled, bool, error) {
	next := func(next func(context.Context, int64) (store.Spooled, bool, error)) doing[two[store.Spooled, bool]] {
		return func(ctx context.Context) (r two[store.Spooled, bool], err error) {
			r.A, r.B, err = next(ctx, after)
			r.A.Committed = r.A.Committed.UTC()
			return r, err
		}
	}
	r, err := read(ctx, t, "next spooled", next(t.real.NextSpooled), next(t.tables.NextSpooled))
	return r.A, r.B, err
}

func (t twin) DeleteSpooled(ctx context.Context, first, last int64) error {
	return do(ctx, t, "delete spooled", func(ctx context.Context) error { return t.real.DeleteSpooled(ctx, first, last) },
		func(ctx context.Context) error { return t.tables.DeleteSpooled(ctx, first, last) })
}

func (t twin) Tails(ctx context.Context) ([]store.TopicTail, error) {
	return read(ctx, t, "tails", t.real.Tails, t.tables.Tails)
}

func (t twin) Breaker(ctx context.Context, window time.Duration, apart []string) (store.BreakerState, error) {
	return read(ctx, t, "breaker", func(ctx context.Context) (store.BreakerState, error) {
		return t.real.Breaker(ctx, window, apart)
	}, func(ctx context.Context) (store.BreakerState, error) { return t.tables.Breaker(ctx, window, apart) })
}

func (t twin) OpenBreaker(ctx context.Context, said string) error {
	return do(ctx, t, "open breaker", func(ctx context.Context) error { return t.real.OpenBreaker(ctx, said) },
		func(ctx context.Context) error { return t.tables.OpenBreaker(ctx, said) })
}

func (t twin) CloseBreaker(ctx context.Context) error {
	return do(ctx, t, "close breaker", t.real.CloseBreaker, t.tables.CloseBreaker)
}
