package sink_test

import (
	"github.com/cdc-relay/cdc-relay/sink"
)

// diverts holds a scenario's record of the topics that it diverts.
type diverts struct {
	ever map[string]bool // by topic: it was diverted, so lanes may be held without a rejection
	back []*event        // without a key, given back
}

// divert diverts a topic or a partition, or ends that.
func (s *scenario) divert() {
	l := s.lanes[s.random.IntN(len(s.lanes))]
	s.faults.mu.Lock()
	s.ever[l.topic] = true
	for _, of := range s.lanes {
		of.diverted = of.diverted || of.topic == l.topic
	}
	s.faults.mu.Unlock()
	s.engine.Divert(l.topic, s.random.Int32N(4)-1, s.random.IntN(3) > 0)
	s.engine.Troubles()
}

func (s *scenario) undivert(topic string) {
	for p := int32(sink.WholeTopic); p < 6; p++ {
		s.engine.Divert(topic, p, false)
	}
}

// givenBack takes an event back that was diverted, or whose batch was.
func (s *scenario) givenBack(ev *event) {
	l, r := ev.lane, ev.record
	if l.key == nil {
		s.back = append(s.back, ev)
		return
	}
	if r.Generation < l.generation {
		s.failf("lane %s: held with generation %d after %d", l.key, r.Generation, l.generation)
	}
	l.held, l.generation = true, r.Generation
	l.park(ev)
}

// takeBack submits events without a key once more that were given back.
func (s *scenario) takeBack() {
	back := s.back
	s.back = nil
	s.give(back)
	s.todo = append(s.todo, back...)
}

// resume hands events of a held lane in as the relay does, and takes them back where the sink refuses.
func (s *scenario) resume(l *modelLane, events []*event, records []*sink.Record) {
	if s.engine.Resume(l.lane(), records) == nil {
		return
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	l.retrying = 0
	for i, ev := range events {
		ev.pending, ev.retrying = false, false
		ev.with = records[i].Result != sink.None // else it is a new record, which the engine has not taken
		l.park(ev)
	}
}
