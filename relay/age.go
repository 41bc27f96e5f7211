package relay

import (
	"context"
	"fmt"
	"time"
)

// streamAge is how old, by its commit time, the transaction was that was dispatched last; see sink.Config.Behind.
func (r *Relay) streamAge() time.Duration { return time.Duration(r.seen.age.Load()) * time.Microsecond }

const (
	// oldAge is from what age on the stream is behind, so that what can wait does.
	oldAge = time.Second
	// oldFor is for how long that is true after the stream has delivered something: a stream that is idle is not behind.
	oldFor = 500 * time.Millisecond
)

// streamOld says that the stream delivers, and that what it delivers is old.
func (r *Relay) streamOld() bool {
	return r.streamAge() > oldAge && time.Now().UnixNano()-r.seen.delivered.Load() < int64(oldFor)
}

// slowClock is how long the server may take to tell the time for the answer to be worth more than the one before: it is wrong by up to
// half of that.
const slowClock = oldAge / 10

// setClock learns how much the server's clock is ahead of ours, or a clock that is wrong by a second would cost each event
// as much as being behind by a second.
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
