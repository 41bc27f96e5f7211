package settle

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Nothing of a diverted topic is with the sink, so that only another attempt can show whether the topic is well, unless
// the driver learns it by itself. That attempt is the first event of a parked lane. It goes back to the table if it
// fails, and spends no attempt.
const (
	firstProbe = 500 * time.Millisecond // pause before the first attempt of a diverted topic; doubled after each
	lastProbe  = 5 * time.Second
	// blindProbe is the pause where no parked lane is known: then the topic's next events show.
	blindProbe = 10 * time.Second
)

// probing is the lanes to probe with. Any goroutine may use it.
type probing struct {
	mu     sync.Mutex                       // guards what follows
	topics map[string]map[int32]*probeOfOne // diverted topics, by partition; sink.WholeTopic: not known which
}

// probeOfOne is when a partition is tried next, and with which lane. Partitions have turns of their own: one that stays
// in trouble must not take those of another.
type probeOfOne struct {
	lane  store.Lane
	known bool // there is a lane
	pause time.Duration
	next  time.Time
}

func (p *probing) of(topic string, partition int32) *probeOfOne {
	if p.topics == nil {
		p.topics = map[string]map[int32]*probeOfOne{}
	}
	t := p.topics[topic]
	if t == nil {
		t = map[int32]*probeOfOne{}
		p.topics[topic] = t
	}
	one := t[partition]
	if one == nil {
		one = &probeOfOne{pause: firstProbe, next: time.Now().Add(firstProbe)}
		t[partition] = one
	}
	return one
}

// remember notes that an event of the lane is parked because of its topic.
func (p *probing) remember(lane store.Lane, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.of(lane.Topic, partition); !one.known {
		one.lane, one.known = lane, true
	}
}

// forget drops a lane that shows nothing: nothing of it is parked, or its head waits for a person.
func (p *probing) forget(lane store.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.topics[lane.Topic] {
		if one.lane.Source == lane.Source && string(one.lane.Key) == string(lane.Key) {
			one.lane, one.known = store.Lane{}, false
		}
	}
}

// end drops what is known of a topic that is not diverted any more.
func (p *probing) end(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.topics, topic)
}

// due is the lane to probe the partition with, if it is time. Not known: there is none.
func (p *probing) due(topic string, partition int32) (lane store.Lane, known, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, now := p.of(topic, partition), time.Now()
	if lane, known = one.lane, one.known; !known {
		if any := p.topics[topic][sink.WholeTopic]; any != nil {
			lane, known = any.lane, any.known
		}
	}
	if now.Before(one.next) {
		return lane, known, false
	}
	wait := one.pause
	if !known {
		wait = blindProbe
	}
	one.next, one.pause = now.Add(wait), min(2*one.pause, lastProbe)
	return lane, known, true
}

// probe tries the topic, or partition, once more.
func (s *Settler) probe(sick sink.TroubleReport) {
	lane, known, due := s.probes.due(sick.Topic, sick.ProbeAt)
	switch {
	case !due:
	case known:
		s.retrier.probe(lane)
	default:
		s.log.Debug().Str("topic", sick.Topic).Int32("partition", sick.Partition).Msg("trying the topic's next events")
		s.engine.Divert(sick.Topic, sick.Partition, false)
	}
}

// probe has the first event of the lane handed in, whether it is due or not.
func (t *retrier) probe(lane store.Lane) {
	t.mu.Lock()
	t.probes = append(t.probes, lane)
	t.mu.Unlock()
	t.nudge()
}

// setAside parks an event that came back from a retry behind a committed dead letter, because its topic is in trouble,
// and all that waits behind it.
func (l *loop) setAside(d *Delivery) {
	followers := l.lanes.abandon(d)
	l.parking.diverted(d)
	for _, f := range followers {
		l.parking.park(f, outbox.BlockedBy, 0, store.NotDue)
	}
}

// diverted reports whether the event was the first of a retry and came back although nothing in front of it is on its
// way to being a dead letter.
func (l *lanes) diverted(d *Delivery) bool {
	if !d.retried || !l.has(d) {
		return false
	}
	return l.byName[nameOf(d.Record.Lane())].unwritten == 0
}
