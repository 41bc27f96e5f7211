package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

const (
	dueEvery   = 250 * time.Millisecond
	noteEvery  = time.Second
	countEvery = 5 * time.Second

	forgetAgain = time.Minute // after a failure
)

// keep does what has its time: offsets, parked events that are due, counts, old ids.
func (s *session) keep(ctx context.Context) {
	tick := time.NewTicker(dueEvery)
	defer tick.Stop()
	var noted, counted, forgets time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		s.try(ctx, "looking for due events", s.due)
		if now.Sub(noted) >= noteEvery {
			noted = now
			s.try(ctx, "noting offsets", s.note)
		}
		if now.Sub(counted) >= countEvery {
			counted = now
			s.try(ctx, "counting what waits", s.count)
		}
		if !now.Before(forgets) {
			forgets = now.Add(forgetAgain)
			s.try(ctx, "forgetting old ids", func(ctx context.Context) error {
				pause, err := s.ledger.Forget(ctx, s.c.config.Keep)
				if err == nil {
					forgets = now.Add(pause)
				}
				return err
			})
		}
	}
}

func (s *session) try(ctx context.Context, what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, ledger.ErrSetBack) {
		s.fail(err)
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	switch was := s.c.setDown(what, err); {
	case errors.Is(err, errShared) && !was:
		s.c.config.Log.Error("inbox: "+what, "consumer", s.c.config.Name, "error", err)
	case err != nil && !was: // once, not with every tick
		s.c.config.Log.Warn("inbox: "+what, "consumer", s.c.config.Name, "error", err)
	case err == nil && was:
		s.c.config.Log.Info("inbox: "+what+" works again", "consumer", s.c.config.Name)
	}
}

func (s *session) due(ctx context.Context) error {
	var places []ledger.Place
	for _, at := range s.engine.Places() {
		places = append(places, ledger.Place(at))
	}
	if len(places) == 0 {
		return nil
	}
	refs, err := s.ledger.DueLanes(ctx, places)
	for _, ref := range refs {
		s.engine.Due(lanes.Place(ref.Place), lanes.Name(ref.Lane))
	}
	return err
}

// note writes how far the partitions are, and looks whether the database still has what was written before, also where
// nothing has changed.
func (s *session) note(ctx context.Context) error { return s.noteThese(ctx, s.engine.Progress()) }

// noteThese writes to the database first, for a start takes the lower of its offsets and Kafka's. The broker is told of
// those that differ from what was noted.
func (s *session) noteThese(ctx context.Context, progress []lanes.Progress) error {
	var partitions []ledger.Partition
	offsets := map[lanes.Place]int64{}
	s.mu.Lock()
	for _, p := range progress {
		wrote, begun := s.wrote[p.Place]
		if !begun {
			continue
		}
		partitions = append(partitions, ledger.Partition{
			Place: ledger.Place(p.Place), TopicID: s.topicIDs[p.Place.Topic], Next: p.Next, Wrote: wrote,
		})
		if before, there := s.told[p.Place]; there && before == p.Next {
			continue
		}
		offsets[p.Place] = p.Next
	}
	s.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	if err := s.ledger.Note(ctx, partitions); err != nil {
		return err
	}
	s.mu.Lock()
	for _, p := range partitions {
		if wrote, begun := s.wrote[lanes.Place(p.Place)]; begun {
			s.wrote[lanes.Place(p.Place)] = max(wrote, p.Next)
		}
	}
	s.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	if err := s.feed.tell(ctx, offsets); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range progress {
		if _, begun := s.wrote[p.Place]; begun {
			s.told[p.Place] = p.Next
		}
	}
	return nil
}

// release notes the offsets of partitions that go, and that they were left in good order.
func (s *session) release(ctx context.Context, going []lanes.Place) error {
	of := set(going)
	var progress []lanes.Progress
	for _, p := range s.engine.Progress() {
		if of[p.Place] {
			progress = append(progress, p)
		}
	}
	if len(progress) == 0 {
		return nil
	}
	committed := s.noteThese(ctx, progress)
	if errors.Is(committed, ledger.ErrSetBack) {
		s.fail(committed)
		return committed
	}
	all := make([]ledger.Place, len(progress))
	for i, p := range progress {
		all[i] = ledger.Place(p.Place)
	}
	return errors.Join(committed, s.ledger.Release(ctx, s.holder, all))
}

func (s *session) count(ctx context.Context) error {
	counts, err := s.ledger.Count(ctx)
	if err != nil {
		return err
	}
	s.engine.SetFull(counts.ParkedEvents >= int64(s.c.config.MaxParked))
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.counts, s.c.counted = counts, true
	return nil
}
