package relay

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

const (
	dueLanes     = 64                     // lanes whose time has come that are read at once
	retrierPause = 100 * time.Millisecond // between two looks for due lanes, at least
	retrierLook  = 5 * time.Second        // between two looks, at most, while anything is parked
	tidyEvery    = 30 * time.Second       // between two looks for lanes that nobody would wake
)

// laneRows is what the retrier read of a lane.
type laneRows struct {
	lane  store.Lane
	rows  []store.ParkedRow
	asked bool // the settler asked for it; else its time has come
}

// retrier reads parked events for the settler: those whose time has come, and the next portions of lanes that are being
// drained. It decides nothing. No transaction is open while an event is published, and no row is locked: the process that
// holds the slot is the only one that retries.
type retrier struct {
	r    *Relay
	read chan laneRows
	wake chan struct{} // something may be due sooner than known

	mu    sync.Mutex
	asked []store.Lane // guarded by mu
}

func newRetrier(r *Relay) *retrier {
	return &retrier{r: r, read: make(chan laneRows), wake: make(chan struct{}, 1)}
}

// ask has the lane's next portion read.
func (t *retrier) ask(lane store.Lane) {
	t.mu.Lock()
	t.asked = append(t.asked, lane)
	t.mu.Unlock()
	t.nudge()
}

func (t *retrier) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *retrier) run(ctx context.Context) {
	var next time.Time // when something is due
	tidied := time.Now()
	for {
		wait := retrierLook
		if !next.IsZero() {
			wait = min(max(time.Until(next), retrierPause), retrierLook)
		}
		select {
		case <-t.wake:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if !t.r.mayRetry() {
			continue
		}
		if !t.answer(ctx) {
			return
		}
		if t.r.parked.Load() == 0 {
			next = time.Time{}
			continue
		}
		if time.Since(tidied) > tidyEvery {
			tidied = time.Now()
			t.r.tidyParked(ctx)
		}
		if time.Now().After(next) {
			pause := t.due(ctx)
			next = time.Now().Add(pause)
		}
	}
}

// answer reads what the settler asked for.
func (t *retrier) answer(ctx context.Context) (more bool) {
	t.mu.Lock()
	asked := t.asked
	t.asked = nil
	t.mu.Unlock()
	for i, lane := range asked {
		rows, err := t.r.store.LaneRows(ctx, lane, drainRows)
		if err != nil {
			if ctx.Err() != nil {
				return false
			}
			t.r.noteRetryTrouble(err)
			t.mu.Lock()
			t.asked = append(t.asked, asked[i:]...)
			t.mu.Unlock()
			return true
		}
		if !t.hand(ctx, laneRows{lane: lane, rows: rows, asked: true}) {
			return false
		}
	}
	return true
}

// due reads the heads of lanes whose time has come and says how long it is until the next.
func (t *retrier) due(ctx context.Context) time.Duration {
	lanes, next, err := t.r.store.DueLanes(ctx, dueLanes)
	if err != nil {
		t.r.noteRetryTrouble(err)
		return time.Second
	}
	for _, lane := range lanes {
		rows, err := t.r.store.LaneRows(ctx, lane, drainRows)
		if err != nil {
			t.r.noteRetryTrouble(err)
			return time.Second
		}
		if len(rows) > 0 && !t.hand(ctx, laneRows{lane: lane, rows: rows}) {
			return 0
		}
	}
	switch {
	case len(lanes) > 0:
		return retrierPause // those that were not read may be due as well
	case next < 0:
		return retrierLook
	}
	return next
}

func (t *retrier) hand(ctx context.Context, read laneRows) bool {
	select {
	case t.read <- read:
		return true
	case <-ctx.Done():
		return false
	}
}

// mayRetry says whether this process is the one that retries, and the redelivery after a start is over: before that an
// event that is still to be recognised could be overtaken.
func (r *Relay) mayRetry() bool {
	s := r.session.Load()
	return s != nil && !s.lookingUp.Load() && !r.stopping.Load() && r.health.role() == RoleActive
}

func (r *Relay) noteRetryTrouble(err error) {
	if r.health.settleTrouble("retry", err) {
		r.log.Warn().Err(err).Msg("cannot read parked events; they stay parked")
	}
}

// loadParked makes the sink hold the lanes that have parked events, before anything of the stream is sent.
func (s *session) loadParked(ctx context.Context) error {
	r := s.r
	lanes, events, err := r.store.ParkedLanes(ctx)
	if err != nil {
		return err
	}
	if r.epoch != 0 && s.state.Epoch != r.epoch {
		// Another relay had the slot meanwhile and may have drained lanes that our sink still holds.
		r.engine.HeldLanes(func(topic string, key []byte) { r.retrier.ask(store.Lane{Topic: topic, Key: key}) })
	}
	r.parked.Store(events)
	for _, l := range lanes {
		r.engine.Hold(l.Topic, l.Key)
	}
	if events == 0 {
		return nil
	}
	topics, err := r.store.WaitingTopics(ctx)
	if err != nil {
		return err
	}
	for _, topic := range topics { // they were in trouble; whether they still are shows by itself
		r.divert(topic, wholeTopic, "events were parked for it before this start")
	}
	if err := r.store.WakeHeads(ctx); err != nil {
		return err
	}
	r.log.Info().Int64("events", events).Int("keys", len(lanes)).Msg("events are parked; their keys are held until they are published")
	return nil
}

// tidyParked wakes lanes that nothing else would wake: their head has no time, or waits for a topic that is well.
func (r *Relay) tidyParked(ctx context.Context) {
	topics, err := r.store.WaitingTopics(ctx)
	if err == nil {
		for _, topic := range topics {
			if !r.troubled(topic) {
				err = r.store.MakeDue(ctx, topic)
			}
		}
	}
	if err == nil {
		err = r.store.WakeHeads(ctx)
	}
	if err != nil && ctx.Err() == nil {
		r.noteRetryTrouble(err)
	}
}
