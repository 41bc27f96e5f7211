package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	mirrorStep  = 1000                   // rows marked in one transaction
	mirrorPause = 200 * time.Millisecond // between two looks while there is something left
	// mirrorRest is after everything was marked, since each step costs the server a flush of its WAL, and mirrorEach more
	// for each row marked since the last rest, up to steadyRest: the rest grows with the pace.
	mirrorRest  = 200 * time.Millisecond
	mirrorEach  = 4 * time.Millisecond
	steadyRest  = time.Second
	targetRests = 100             // with a latency target it may grow to so many times the target
	mirrorAgain = time.Second     // after an error that passes, such as a lock
	mirrorRetry = 5 * time.Second // after another error
	// mirrorDenied is after a refusal that a person must end: each attempt is a line in the server's log.
	mirrorDenied = 15 * time.Second
	// mirrorStarve is how long it may be put off by events that wait.
	mirrorStarve = 2 * time.Second
	// retentionLooks is how many looks for rows to delete fall into their retention.
	retentionLooks = 20
)

// Mirror copies published_at from the journal to the rows, or deletes them, beside the path of the events: what is
// published is known from the journal alone. It sleeps while there is nothing to do, and yields while the relay is
// behind.
func (k *Keeper) Mirror(ctx context.Context) {
	if k.c.Outbox.AfterPublish == config.AfterPublishKeep {
		return
	}
	last, marked := time.Now(), 0
	for {
		for k.host.Behind() && time.Since(last) < mirrorStarve {
			if !sleep(ctx, mirrorPause) {
				return
			}
		}
		rows, more, pause := k.mirrorOnce(ctx)
		last, marked = time.Now(), marked+rows
		switch {
		case pause > 0:
			if !sleep(ctx, pause) {
				return
			}
		case !more:
			if !sleep(ctx, k.restAfter(marked)) {
				return
			}
			marked = 0
			select {
			case <-k.host.Progress():
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// restAfter is the rest after so many rows were marked.
func (k *Keeper) restAfter(marked int) time.Duration {
	return min(mirrorRest+time.Duration(marked)*mirrorEach, max(steadyRest, targetRests*k.c.LatencyTarget.Std()))
}

// mirrorOnce marks one portion. more: the journal may hold more. pause: wait before the next look.
func (k *Keeper) mirrorOnce(ctx context.Context) (rows int, more bool, pause time.Duration) {
	if !k.host.HoldsSlot() {
		return 0, true, mirrorPause // only the process that holds the slot mirrors
	}
	step := k.tables.MirrorStep
	if k.c.Outbox.AfterPublish == config.AfterPublishDelete {
		step = k.deleteStep
	}
	told := k.host.Owner()
	rows, more, err := step(ctx, mirrorStep)
	if ctx.Err() != nil {
		return 0, false, 0
	}
	told(err)
	switch {
	case store.IsTransient(err):
		k.log.Debug().Err(err).Msg("cannot mark published rows now; events are not affected")
		return 0, true, mirrorAgain
	case store.IsDenied(err):
		k.say(fmt.Errorf("this role may not do it: rows stay as they are, as with outbox.after_publish: keep, until it "+
			"may; cdc-relay check names the GRANT: %w", err))
		return 0, true, mirrorDenied
	case err != nil:
		k.say(err)
		return 0, true, mirrorRetry
	}
	k.host.Marked(rows)
	if rows == 0 && more { // what is left is locked or above the oldest running transaction
		return 0, true, mirrorPause
	}
	return rows, more, 0
}

// say notes why rows cannot be marked, and logs it if that is news.
func (k *Keeper) say(err error) {
	if k.host.CannotMark(err) {
		k.log.Warn().Err(err).Msg("cannot mark or delete published rows; events are not affected")
	}
}

// deleteStep deletes published rows. What is not below the persisted confirmed position yet is looked at again.
func (k *Keeper) deleteStep(ctx context.Context, limit int) (rows int, more bool, err error) {
	retention := time.Duration(k.c.Outbox.Retention)
	rows, more, err = k.tables.DeleteStep(ctx, retention, limit)
	if err != nil || more {
		return rows, more, err
	}
	left, _, err := k.tables.MirrorLag(ctx)
	if left > 0 && rows == 0 && err == nil && !sleep(ctx, positionEvery) {
		return 0, false, ctx.Err()
	}
	if retention > 0 && rows == 0 && left == 0 && err == nil { // time makes more of them due, events or not
		return 0, true, sleepErr(ctx, retentionPause(retention))
	}
	return rows, left > 0, err
}

// retentionPause is the pause between two looks for rows that have become older than their retention.
func retentionPause(retention time.Duration) time.Duration {
	return min(max(retention/retentionLooks, positionEvery), cleanEvery)
}

// sleepErr waits and returns why it ended early.
func sleepErr(ctx context.Context, d time.Duration) error {
	sleep(ctx, d)
	return ctx.Err()
}
