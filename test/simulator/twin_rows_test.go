package simulator

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

func (t twin) CountUnrecorded(ctx context.Context, limit int64) (int64, error) {
	return read(ctx, t, "count unrecorded", func(ctx context.Context) (int64, error) {
		return t.real.CountUnrecorded(ctx, limit)
	}, func(ctx context.Context) (int64, error) { return t.tables.CountUnrecorded(ctx, limit) })
}

func (t twin) BeginCatchUp(ctx context.Context, late bool) error {
	return do(ctx, t, "begin catch-up", func(ctx context.Context) error { return t.real.BeginCatchUp(ctx, late) },
		func(ctx context.Context) error { return t.tables.BeginCatchUp(ctx, late) })
}

func (t twin) BeginCatchUpSince(ctx context.Context, epoch int64, late bool) (bool, error) {
	return write(ctx, t, "begin catch-up since", func(ctx context.Context) (bool, error) {
		return t.real.BeginCatchUpSince(ctx, epoch, late)
	}, func(ctx context.Context) (bool, error) { return t.tables.BeginCatchUpSince(ctx, epoch, late) })
}

func (t twin) BeginCatchUpOfLost(ctx context.Context) (bool, error) {
	return write(ctx, t, "begin catch-up of lost", t.real.BeginCatchUpOfLost, t.tables.BeginCatchUpOfLost)
}

func (t twin) SnapshotCatchUp(ctx context.Context) (int64, error) {
	return write(ctx, t, "snapshot", t.real.SnapshotCatchUp, t.tables.SnapshotCatchUp)
}

func (t twin) ReusedAside(ctx context.Context, limit int) ([]store.Aside, error) {
	return t.tables.ReusedAside(ctx, limit)
}

func (t twin) CatchUpRows(ctx context.Context, after uint64, limit int) ([]store.CatchUpRow, error) {
	limit = min(limit, pageMost)
	return read(ctx, t, "catch-up rows", func(ctx context.Context) ([]store.CatchUpRow, error) {
		rows, err := t.real.CatchUpRows(ctx, after, limit)
		for i := range rows {
			rows[i].Listed = false // only tells events of one id apart, and no id is used again
		}
		return rows, err
	}, func(ctx context.Context) ([]store.CatchUpRow, error) { return t.tables.CatchUpRows(ctx, after, limit) })
}

func (t twin) FinishCatchUp(ctx context.Context) error {
	return do(ctx, t, "finish catch-up", t.real.FinishCatchUp, t.tables.FinishCatchUp)
}

func (t twin) MirrorStep(ctx context.Context, limit int) (int, bool, error) {
	limit = min(limit, stepMost)
	r, err := write(ctx, t, "mirror", pair(func(ctx context.Context) (int, bool, error) {
		return t.real.MirrorStep(ctx, limit)
	}), pair(func(ctx context.Context) (int, bool, error) { return t.tables.MirrorStep(ctx, limit) }))
	return r.A, r.B, err
}

func (t twin) DeleteStep(ctx context.Context, retention time.Duration, limit int) (int, bool, error) {
	limit = min(limit, stepMost)
	r, err := write(ctx, t, "delete", pair(func(ctx context.Context) (int, bool, error) {
		return t.real.DeleteStep(ctx, retention, limit)
	}), pair(func(ctx context.Context) (int, bool, error) { return t.tables.DeleteStep(ctx, retention, limit) }))
	return r.A, r.B, err
}

func (t twin) MirrorLag(ctx context.Context) (int64, time.Duration, error) {
	r, err := both(ctx, t, "mirror lag", true, pair(t.real.MirrorLag), pair(t.tables.MirrorLag),
		all[two[int64, time.Duration]])
	return r.A, r.B, err
}

func (t twin) Prune(ctx context.Context, retention time.Duration, limit int) (int, bool, error) {
	r, err := write(ctx, t, "prune", pair(func(ctx context.Context) (int, bool, error) {
		return t.real.Prune(ctx, retention, limit)
	}), pair(func(ctx context.Context) (int, bool, error) { return t.tables.Prune(ctx, retention, limit) }))
	return r.A, r.B, err
}

func (t twin) PruneDead(ctx context.Context, retention time.Duration, limit int) (int, bool, error) {
	r, err := write(ctx, t, "prune dead", pair(func(ctx context.Context) (int, bool, error) {
		return t.real.PruneDead(ctx, retention, limit)
	}), pair(func(ctx context.Context) (int, bool, error) { return t.tables.PruneDead(ctx, retention, limit) }))
	return r.A, r.B, err
}

// AuditState knows the size of the table, which no one makes up.
func (t twin) AuditState(ctx context.Context) (store.AuditState, error) {
	return both(ctx, t, "audit state", true, t.real.AuditState, t.tables.AuditState, func(a store.AuditState) any {
		a.Blocks = 0
		return a
	})
}

func (t twin) SaveHorizon(ctx context.Context, at time.Time) error {
	at = at.Truncate(time.Microsecond)
	return do(ctx, t, "save horizon", func(ctx context.Context) error { return t.real.SaveHorizon(ctx, at) },
		func(ctx context.Context) error { return t.tables.SaveHorizon(ctx, at) })
}

func (t twin) SaveSweep(ctx context.Context, at time.Time) error {
	at = at.Truncate(time.Microsecond)
	return do(ctx, t, "save sweep", func(ctx context.Context) error { return t.real.SaveSweep(ctx, at) },
		func(ctx context.Context) error { return t.tables.SaveSweep(ctx, at) })
}

// shownIDs are ids in some order; those that a limit cuts off may be others.
func shownIDs(limit int) func(ids [][]byte) any {
	return func(ids [][]byte) any {
		if len(ids) >= limit {
			return len(ids)
		}
		shown := []string{}
		for _, id := range ids {
			shown = append(shown, string(id))
		}
		slices.Sort(shown)
		return shown
	}
}

func (t twin) UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error) {
	since = since.Truncate(time.Microsecond)
	return both(ctx, t, "unrecorded since", true, func(ctx context.Context) ([][]byte, error) {
		return t.real.UnrecordedSince(ctx, since, limit)
	}, func(ctx context.Context) ([][]byte, error) { return t.tables.UnrecordedSince(ctx, since, limit) }, shownIDs(limit))
}

// UnrecordedIn reads whole tables here, which have few blocks: the made-up one has one.
func (t twin) UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error) {
	if from == 0 {
		to = max(to, manyBlocks)
	}
	return both(ctx, t, "unrecorded in", true, func(ctx context.Context) ([][]byte, error) {
		return t.real.UnrecordedIn(ctx, from, to, limit)
	}, func(ctx context.Context) ([][]byte, error) {
		return t.tables.UnrecordedIn(ctx, from, to, limit)
	}, func(ids [][]byte) any {
		if from > 0 { // again, if the table is larger than it should be
			return nil
		}
		return shownIDs(limit)(ids)
	})
}

const manyBlocks = 1 << 20

func (t twin) LateRows(ctx context.Context, ids [][]byte, limit int) ([]store.CatchUpRow, error) {
	return read(ctx, t, "late rows", func(ctx context.Context) ([]store.CatchUpRow, error) {
		return t.real.LateRows(ctx, ids, limit)
	}, func(ctx context.Context) ([]store.CatchUpRow, error) { return t.tables.LateRows(ctx, ids, limit) })
}

// askedTwin is a twin of tables with requests.
type askedTwin struct{ twin }

func (t askedTwin) made() asked { return asked{t.tables} }

func (t askedTwin) NextRequest(ctx context.Context) (*store.Request, error) {
	return read(ctx, t.twin, "next request", t.real.NextRequest, t.made().NextRequest)
}

// apart gives each of the two a request of its own: a method may write into it.
func apart(r *store.Request) (real, made *store.Request) {
	first, second := *r, *r
	return &first, &second
}

func (t askedTwin) StartRequest(ctx context.Context, r *store.Request) error {
	one, other := apart(r)
	got, err := both(ctx, t.twin, "start request", false, func(ctx context.Context) (*store.Request, error) {
		return one, t.real.StartRequest(ctx, one)
	}, func(ctx context.Context) (*store.Request, error) {
		return other, t.made().StartRequest(ctx, other)
	}, all[*store.Request])
	*r = *got
	return err
}

func (t askedTwin) FinishRequest(ctx context.Context, id int64, failed string) error {
	return do(ctx, t.twin, "finish request", func(ctx context.Context) error {
		return t.real.FinishRequest(ctx, id, failed)
	}, func(ctx context.Context) error { return t.made().FinishRequest(ctx, id, failed) })
}

func (t askedTwin) NoteRequest(ctx context.Context, id, total, done int64) error {
	return do(ctx, t.twin, "note request", func(ctx context.Context) error {
		return t.real.NoteRequest(ctx, id, total, done)
	}, func(ctx context.Context) error { return t.made().NoteRequest(ctx, id, total, done) })
}

// shownStep leaves out the number of a row, which those that were refused have used up.
func shownStep(s store.Step) any {
	s.Next.ID = 0
	return []any{s.Seen, s.Parked, laneNames(s.Lanes), s.Next}
}

func (t askedTwin) ReplayDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	limit = min(limit, someDead)
	return both(ctx, t.twin, "replay", false, func(ctx context.Context) (store.Step, error) {
		return t.real.ReplayDead(ctx, r, from, limit)
	}, func(ctx context.Context) (store.Step, error) { return t.made().ReplayDead(ctx, r, from, limit) }, shownStep)
}

func (t askedTwin) DiscardDead(ctx context.Context, r *store.Request, from store.DeadCursor,
	limit int) (store.Step, error) {
	limit = min(limit, someDead)
	return both(ctx, t.twin, "discard", false, func(ctx context.Context) (store.Step, error) {
		return t.real.DiscardDead(ctx, r, from, limit)
	}, func(ctx context.Context) (store.Step, error) { return t.made().DiscardDead(ctx, r, from, limit) }, shownStep)
}

func (t askedTwin) RetryNow(ctx context.Context, r *store.Request, limit int) (int64, error) {
	one, other := apart(r)
	n, err := write(ctx, t.twin, "retry now", func(ctx context.Context) (int64, error) {
		return t.real.RetryNow(ctx, one, limit)
	}, func(ctx context.Context) (int64, error) { return t.made().RetryNow(ctx, other, limit) })
	*r = *one
	return n, err
}

func (t askedTwin) RepublishRows(ctx context.Context, r *store.Request, limit int) ([]store.CatchUpRow, error) {
	limit = min(limit, someRepublished)
	return read(ctx, t.twin, "republish rows", func(ctx context.Context) ([]store.CatchUpRow, error) {
		return t.real.RepublishRows(ctx, r, limit)
	}, func(ctx context.Context) ([]store.CatchUpRow, error) { return t.made().RepublishRows(ctx, r, limit) })
}

func (t askedTwin) Republish(ctx context.Context, r *store.Request, events []store.Parked) (int64, error) {
	return write(ctx, t.twin, "republish", func(ctx context.Context) (int64, error) {
		return t.real.Republish(ctx, r, events)
	}, func(ctx context.Context) (int64, error) { return t.made().Republish(ctx, r, events) })
}

func (t askedTwin) SetPause(ctx context.Context, r *store.Request) (*store.Pause, error) {
	return write(ctx, t.twin, "set pause", func(ctx context.Context) (*store.Pause, error) {
		return t.real.SetPause(ctx, r)
	}, func(ctx context.Context) (*store.Pause, error) { return t.made().SetPause(ctx, r) })
}

func (t askedTwin) Paused(ctx context.Context) (*store.Pause, error) {
	return read(ctx, t.twin, "paused", t.real.Paused, t.made().Paused)
}
