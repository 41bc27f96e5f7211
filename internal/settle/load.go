package settle

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// LoadParked makes the sink hold the lanes that have parked events. A session does it before anything of the stream
// is sent.
func (s *Settler) LoadParked(ctx context.Context) error {
	lanes, events, err := s.tables.ParkedLanes(ctx)
	if err != nil {
		return err
	}
	s.parked.Store(events)
	for _, l := range lanes {
		s.engine.Hold(l)
	}
	first := map[string]store.Lane{} // of each topic
	for _, l := range lanes {
		if _, known := first[l.Topic]; !known {
			first[l.Topic] = l
		}
	}
	if events > 0 && !s.loaded { // later the diverter knows what is in trouble, and why
		waiting, err := s.tables.WaitingTopics(ctx)
		if err != nil {
			return err
		}
		for _, w := range waiting { // they were in trouble; whether they still are shows by itself
			s.divert(w.Topic, sink.WholeTopic, beforeStart(w.Why))
			if lane, known := first[w.Topic]; known {
				s.probes.remember(lane, sink.WholeTopic)
			}
		}
	}
	s.loaded = true
	if events == 0 {
		return nil
	}
	s.retrier.tidySoon()
	s.log.Info().Int64("events", events).Int("keys", len(lanes)).
		Msg("events are parked; their keys are held until they are published")
	return nil
}
