package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	mirrorStep  = 1000                   // rows marked in one transaction
	mirrorPause = 200 * time.Millisecond // between two looks while there is something left
	mirrorRest  = 200 * time.Millisecond // after everything was marked: each step costs the server a flush of its WAL
	mirrorAgain = time.Second            // after an error that passes, such as a lock
	mirrorRetry = 5 * time.Second        // after another error
	// mirrorYield is how full the window may be before the mirror lets the events go first.
	mirrorYield = 0.25
	// mirrorStarve is how long it may be put off by that.
	mirrorStarve = 2 * time.Second
	// retentionLooks is how many looks for rows to delete fall into their retention.
	retentionLooks = 20
)

// mirror copies published_at from the journal to the rows, or deletes them, beside the path of the events: what is published is known
// from the journal alone. It sleeps while there is nothing to do, and yields while the relay is behind.
func (t *term) mirror(ctx context.Context) {
	if t.r.c.Outbox.AfterPublish == config.AfterPublishKeep {
		return
	}
	last := time.Now()
	for {
		for t.behind() && time.Since(last) < mirrorStarve {
			if !sleep(ctx, mirrorPause) {
				return
			}
		}
		more, pause := t.mirrorOnce(ctx)
		last = time.Now()
		switch {
		case pause > 0:
			if !sleep(ctx, pause) {
				return
			}
		case !more:
			if !sleep(ctx, mirrorRest) {
				return
			}
			select {
			case <-t.settler.progress:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// mirrorOnce marks one portion. more: the journal may hold more. pause: wait before the next look.
func (t *term) mirrorOnce(ctx context.Context) (more bool, pause time.Duration) {
	if t.session.Load() == nil {
		return true, mirrorPause // only the process that holds the slot mirrors
	}
	step := t.r.store.MirrorStep
	if t.r.c.Outbox.AfterPublish == config.AfterPublishDelete {
		step = t.deleteStep
	}
	owner := t.owner()
	rows, more, err := step(ctx, mirrorStep)
	if ctx.Err() != nil {
		return false, 0
	}
	owner.heed(err)
	switch {
	case store.IsTransient(err):
		t.r.log.Debug().Err(err).Msg("cannot mark published rows now; events are not affected")
		return true, mirrorAgain
	case err != nil:
		if t.r.health.mirrorTrouble(err) {
			t.r.log.Warn().Err(err).Msg("cannot mark published rows; events are not affected")
		}
		return true, mirrorRetry
	}
	t.r.health.mirrored()
	if rows == 0 && more { // what is left is locked or above the oldest running transaction
		return true, mirrorPause
	}
	return more, 0
}

// deleteStep deletes published rows. What is not below the persisted confirmed position yet is looked at again.
func (t *term) deleteStep(ctx context.Context, limit int) (rows int, more bool, err error) {
	retention := time.Duration(t.r.c.Outbox.Retention)
	rows, more, err = t.r.store.DeleteStep(ctx, retention, limit)
	if err != nil || more {
		return rows, more, err
	}
	left, err := t.r.store.MirrorLag(ctx)
	if left > 0 && rows == 0 && err == nil && !sleep(ctx, progressEvery) {
		return 0, false, ctx.Err()
	}
	if retention > 0 && rows == 0 && left == 0 && err == nil { // time makes more of them due, events or not
		return 0, true, sleepErr(ctx, retentionPause(retention))
	}
	return rows, left > 0, err
}

// retentionPause is the pause between two looks for rows that have become older than their retention.
func retentionPause(retention time.Duration) time.Duration {
	return min(max(retention/retentionLooks, progressEvery), cleanEvery)
}

// sleepErr waits and says why not for so long.
func sleepErr(ctx context.Context, d time.Duration) error {
	sleep(ctx, d)
	return ctx.Err()
}

// behind says that events wait: in the WAL, for the sink or for Postgres.
func (t *term) behind() bool {
	if t.r.streamOld() {
		return true
	}
	s := t.engine.Status()
	full := max(float64(s.Events)/float64(t.r.c.Limits.InFlightEvents), float64(s.Bytes)/float64(t.r.c.Limits.InFlightBytes))
	return full > mirrorYield
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
