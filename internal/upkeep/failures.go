package upkeep

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	failureStep  = 500                    // rows that show a failure, written in one transaction
	failureRest  = time.Second            // between two looks: a row shows what was true last, at most so often
	failurePause = 200 * time.Millisecond // between two portions
	// failureShare is the part of the time that looks may take, one of so many.
	failureShare = 20
	// failureSaid is how often the log repeats an error that stays.
	failureSaid = 5 * time.Minute
)

// showing is one kind of failure that rows are to show. It belongs to the loop.
type showing struct {
	step  func(ctx context.Context, skip, limit int) (due, left int, err error)
	next  time.Time // when it is looked at again
	skip  int       // those in front that could not be shown
	limit int
	bad   int    // of those, in this round, because of an error
	said  string // the last error in the log
	at    time.Time
}

// Failures writes into outbox rows that their events are dead letters, or have failed and are tried again, where
// outbox.dead_set and retry_set say how. What is to be shown is read from the relay's tables, so a crash forgets
// nothing; and it stays there until it is shown, so no event waits for it.
func (k *Keeper) Failures(ctx context.Context) {
	var kinds []*showing
	if k.c.Outbox.DeadSet != "" {
		kinds = append(kinds, &showing{step: k.tables.ShowDead, limit: failureStep})
	}
	if k.c.Outbox.RetrySet != "" {
		kinds = append(kinds, &showing{step: k.tables.ShowRetried, limit: failureStep})
	}
	for i := 0; len(kinds) > 0; i++ { // alternately
		s := kinds[i%len(kinds)]
		if !sleep(ctx, time.Until(s.next)) {
			return
		}
		begun := time.Now()
		for k.host.Behind() && time.Since(begun) < mirrorStarve {
			if !sleep(ctx, mirrorPause) {
				return
			}
		}
		begun = time.Now()
		pause := failureRest
		if k.host.HoldsSlot() { // only the process that holds the slot writes
			pause = k.showSome(ctx, s)
		}
		if ctx.Err() != nil {
			return
		}
		s.next = time.Now().Add(max(pause, time.Since(begun)*failureShare))
	}
}

// showSome shows one portion, and says when to look again. Rows that cannot be shown now are passed over until the
// others are. An error that the values of one row bring on must not keep the others waiting: smaller portions leave it
// alone in the end.
func (k *Keeper) showSome(ctx context.Context, s *showing) (pause time.Duration) {
	told := k.host.Owner()
	due, left, err := s.step(ctx, s.skip, s.limit)
	if ctx.Err() != nil {
		return 0
	}
	told(err)
	switch {
	case err == nil && due == s.limit:
		s.skip += left
		s.limit = min(2*s.limit, failureStep)
		return failurePause
	case err == nil:
		bad := s.bad
		s.skip, s.limit, s.bad = 0, failureStep, 0
		if bad > 0 {
			return mirrorDenied
		}
		return failureRest
	case store.IsDenied(err):
		pause = mirrorDenied
	case store.IsTransient(err) || due == 0:
		pause = mirrorAgain
	case due > 1:
		s.limit = (due + 1) / 2
		return mirrorAgain
	default:
		s.skip, s.bad = s.skip+1, s.bad+1
		pause = mirrorAgain
	}
	k.sayFailure(s, err)
	return pause
}

// sayFailure logs why rows do not show what they should.
func (k *Keeper) sayFailure(s *showing, err error) {
	event := k.log.Debug()
	if !store.IsTransient(err) && (s.said != err.Error() || time.Since(s.at) >= failureSaid) {
		event = k.log.Warn()
		s.said, s.at = err.Error(), time.Now()
	}
	event.Err(err).Msg("cannot show in outbox rows that their events failed; events are not affected")
}
