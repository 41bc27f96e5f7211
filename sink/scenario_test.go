package sink_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// faults chooses the broker's answers, and checks what is handed to it.
type faults struct {
	fail, slow float64 // chances of an attempt
	named      int     // 0: the guilty are never named, 1: always, 2: by chance
	limit      int     // of unrecorded

	mu      sync.Mutex // guards what follows and the events' fields that the broker changes or reads
	on      bool
	random  *rand.Rand
	handed  int
	reports []string
}

func (f *faults) answer(a sinktest.Attempt) sinktest.Plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	var guilty []int
	written := false
	for i, r := range a.Batch.Records {
		ev := r.Owner.(*event)
		ev.again = ev.handed
		if !ev.handed {
			ev.handed = true
			f.handed++
		}
		if !ev.pending {
			f.reports = append(f.reports, "event "+strconv.Itoa(ev.number)+" is sent after its result")
		}
		if ev.lane.held && ev.lane.key != nil && !ev.retrying && !ev.again && !ev.lane.diverted {
			f.reports = append(f.reports, "event "+strconv.Itoa(ev.number)+" of a held lane is sent")
		}
		if ev.poison > 0 {
			guilty = append(guilty, i)
		}
		written = written || ev.writtenTo
	}
	if f.handed > f.limit {
		f.reports = append(f.reports, "unrecorded: "+strconv.Itoa(f.handed)+", more than "+strconv.Itoa(f.limit))
	}
	plan := f.plan(guilty, written, a.Batch.Alone)
	if o := &plan.Outcome; o.Verdict != sink.Unanswered && f.random.IntN(3) == 0 {
		o.Written = f.random.IntN(len(a.Batch.Records)) // a front, and none of the guilty
		if len(guilty) > 0 {
			o.Written = min(o.Written, guilty[0])
		}
	}
	f.note(a.Batch, plan)
	return plan
}

func (f *faults) plan(guilty []int, written, alone bool) sinktest.Plan {
	var plan sinktest.Plan
	if f.on && f.random.Float64() < f.slow {
		plan.Delay = time.Duration(f.random.IntN(2000)) * time.Millisecond
	}
	if f.on && f.random.Float64() < f.fail {
		troubles := []sink.Trouble{sink.PartitionTrouble, sink.TopicTrouble, sink.ClusterTrouble, sink.ConfigurationTrouble}
		plan.Outcome = sink.Outcome{
			Verdict: sink.NotWritten, Trouble: troubles[f.random.IntN(len(troubles))],
			Pause: f.random.IntN(2) == 0, Err: errors.New("trouble"),
		}
		if f.random.IntN(2) == 0 {
			plan.Outcome.Verdict = sink.Unknown
			if plan.Outcome.Trouble == sink.TopicTrouble && f.random.IntN(2) == 0 {
				plan.Outcome.Err = sinktest.ErrGone
			}
			plan.Outcome.Alone = !alone && f.random.IntN(4) == 0
			plan.Written = len(guilty) == 0 && f.random.IntN(2) == 0
		}
		return plan
	}
	if len(guilty) > 0 && !written {
		reason := &sink.Reason{Class: outbox.Permanent, Code: "POISON", Text: "poison"}
		plan.Outcome = sink.Outcome{Verdict: sink.Refused, Reasons: []*sink.Reason{reason}}
		if f.named == 1 || f.named == 2 && f.random.IntN(2) == 0 {
			plan.Outcome.Guilty = guilty
			for len(plan.Outcome.Reasons) < len(guilty) {
				plan.Outcome.Reasons = append(plan.Outcome.Reasons, reason)
			}
		}
	}
	return plan
}

// note takes down what the plan does to the batch's events.
func (f *faults) note(b *sink.Batch, plan sinktest.Plan) {
	for i, r := range b.Records {
		ev := r.Owner.(*event)
		if i < plan.Outcome.Written {
			ev.writtenTo = true
			continue
		}
		switch plan.Outcome.Verdict {
		case sink.Refused:
			ev.handed = false
			f.handed--
		case sink.Unknown:
			ev.unknown = true
			ev.writtenTo = ev.writtenTo || plan.Written
		case sink.Unanswered:
			ev.writtenTo = true
		}
	}
}

// shrinking is the broker, and takes down what becomes of events whose partition is gone.
type shrinking struct {
	*sinktest.Broker
	faults *faults
}

func (b shrinking) Dropped(batch *sink.Batch) {
	b.faults.mu.Lock()
	for _, r := range batch.Records {
		ev := r.Owner.(*event)
		if ev.dropped = ev.dropped || batch.Outcome.Verdict != sink.NotWritten; ev.handed {
			ev.handed = false
			b.faults.handed--
		}
	}
	b.faults.mu.Unlock()
	b.Broker.Dropped(batch)
}

// settleSome settles the first n events that have their final result.
func (s *scenario) settleSome(n int) {
	events := s.settle[:n]
	s.settle = slices.Clone(s.settle[n:])
	s.give(events)
}

// give settles the events' records.
func (s *scenario) give(events []*event) {
	var records []*sink.Record
	s.faults.mu.Lock()
	for _, ev := range events {
		if ev.with {
			records = append(records, ev.record)
			ev.with = false
		}
		if ev.handed {
			ev.handed = false
			s.faults.handed--
		}
	}
	s.faults.mu.Unlock()
	s.engine.Settled(records)
}

// fix works on a held lane as a retry worker does: it makes parked events durable, retries, buries, or releases.
func (s *scenario) mend(l *modelLane) {
	if !l.held {
		return
	}
	s.misuse(l)
	switch head := l.head(); {
	case l.retrying > 0:
	case head == nil:
		s.release(l)
	case s.random.IntN(3) == 0:
		s.give(l.parked[:1+s.random.IntN(len(l.parked))]) // parked durably: comes back in a new record
	case head.poison == 3 || head.poison > 0 && s.random.IntN(4) == 0:
		s.bury(l)
	default:
		s.retry(l, s.due(l))
	}
}

// due is a prefix of the lane's parked events, none later than a submitted one whose result is still to come.
func (s *scenario) due(l *modelLane) []*event {
	due := l.parked[:1+s.random.IntN(len(l.parked))]
	for _, ev := range s.events {
		if ev.lane == l && ev.pending {
			due = slices.DeleteFunc(slices.Clone(due), func(p *event) bool { return p.place > ev.place })
		}
	}
	return due
}

func (l *modelLane) head() *event {
	if len(l.parked) == 0 {
		return nil
	}
	return l.parked[0]
}

// misuse tries what must be refused.
func (s *scenario) misuse(l *modelLane) {
	if s.engine.Release(l.lane(), l.generation-1) {
		s.failf("lane %s: release with generation %d of %d: got true", l.key, l.generation-1, l.generation)
	}
	if err := s.engine.Retry(l.lane(), l.generation-1, nil); !errors.Is(err, sink.ErrStaleGeneration) {
		s.failf("lane %s: retry with generation %d of %d: got %v", l.key, l.generation-1, l.generation, err)
	}
	out := false // a retry that is out may have its results already
	for _, ev := range l.parked {
		out = out || ev.with
	}
	if out && s.engine.Release(l.lane(), l.generation) {
		s.failf("lane %s: release with events out: got true", l.key)
	}
}

func (s *scenario) release(l *modelLane) {
	s.faults.mu.Lock()
	l.held = false // what is sent from now on may be from behind the release
	s.faults.mu.Unlock()
	released := s.engine.Release(l.lane(), l.generation)
	s.faults.mu.Lock()
	l.held = !released
	s.faults.mu.Unlock()
}

// bury makes a dead letter of the lane's first event.
func (s *scenario) bury(l *modelLane) {
	ev := l.parked[0]
	l.parked = l.parked[1:]
	ev.dead = true
	s.give([]*event{ev})
}

func (s *scenario) retry(l *modelLane, events []*event) {
	if len(events) == 0 {
		return
	}
	var records []*sink.Record
	s.faults.mu.Lock()
	for _, ev := range events {
		if !ev.with {
			s.fresh(ev)
		}
		records = append(records, ev.record)
		ev.with, ev.pending, ev.retrying = true, true, true
	}
	l.retrying = len(events)
	l.parked = slices.Clone(l.parked[len(events):])
	s.faults.mu.Unlock()
	if s.ever[l.topic] {
		s.resume(l, events, records)
		return
	}
	err := s.engine.Retry(l.lane(), l.generation, records)
	if errors.Is(err, sink.ErrStaleGeneration) {
		s.failf("lane %s: retry with its generation %d: %v", l.key, l.generation, err)
	} else if err != nil {
		s.failf("lane %s: retry: %v", l.key, err)
	}
}

// disturb moves a leader, takes one away, makes a topic larger, or another one of fewer partitions.
func (s *scenario) disturb() {
	l := s.lanes[s.random.IntN(len(s.lanes))]
	n := s.topics[l.topic]
	if n == 0 || s.random.IntN(8) == 0 {
		n++
		s.topics[l.topic] = n
		s.broker.SetTopic(l.topic, n)
		return
	}
	if n > 1 && s.random.IntN(8) == 0 {
		n--
		s.topics[l.topic] = n
		s.broker.SetTopic(l.topic, n)
	}
	s.broker.SetLeader(l.topic, s.random.Int32N(int32(n)), s.random.Int32N(4)-1)
}

// drain ends all faults and works until nothing is left.
func (s *scenario) drain() {
	s.faults.mu.Lock()
	s.faults.on = false
	s.faults.mu.Unlock()
	for topic, n := range s.topics {
		s.undivert(topic)
		s.topics[topic] = max(n, 1)
		s.broker.SetTopic(topic, max(n, 1))
		for p := range max(n, 1) {
			s.broker.SetLeader(topic, int32(p), 0)
		}
	}
	for range 5000 {
		s.submit()
		s.collect()
		s.settleSome(len(s.settle))
		left := len(s.todo)
		for _, l := range s.lanes {
			s.mend(l)
			if l.held {
				left++
			}
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		s.compare()
		if s.failing {
			return
		}
		if status := s.engine.Status(); left == 0 && status.Events == 0 && len(s.settle) == 0 {
			if status.Bytes != 0 || status.Unrecorded != 0 || status.HeldLanes != 0 || status.Pending != 0 ||
				status.State != sink.OK {
				s.failf("status with nothing left: %+v", status)
			}
			return
		}
	}
	s.failf("does not drain: %+v, %d to submit, %d to settle", s.engine.Status(), len(s.todo), len(s.settle))
}

// compare checks the engine's numbers against the model's.
func (s *scenario) compare() {
	status := s.engine.Status() // not under the lock, which the broker takes while the engine waits for the broker's
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	events, bytes := 0, 0
	for _, ev := range s.events {
		if ev.with {
			events++
			bytes += ev.record.Cost
		}
	}
	if status.Events != events || status.Bytes != bytes {
		s.failf("status: got %d events of %d bytes, want %d and %d", status.Events, status.Bytes, events, bytes)
	}
	for _, report := range s.faults.reports {
		s.failf("%s", report)
	}
}

// judge compares the events with what is in the topics.
func (s *scenario) judge() {
	var log []sinktest.Message
	for topic := range s.topics {
		log = append(log, s.broker.Log(topic)...)
	}
	slices.SortFunc(log, func(a, b sinktest.Message) int { return a.Arrival - b.Arrival })
	times := make([]int, len(s.events))
	last := make(map[*modelLane]int)
	for _, m := range log {
		number, _ := strconv.Atoi(string(bytes.TrimRight(m.Value, "\x00")))
		ev := s.events[number]
		if times[number]++; times[number] == 1 && ev.lane.key != nil {
			if ev.place <= last[ev.lane] {
				s.failf("lane %s of %s: place %d is in the topic after %d", ev.lane.key, ev.lane.topic, ev.place, last[ev.lane])
			}
			last[ev.lane] = ev.place
		}
	}
	for _, ev := range s.events {
		switch n := times[ev.number]; {
		case ev.published == ev.dead:
			s.failf("event %d: published %v, dead %v", ev.number, ev.published, ev.dead)
		case ev.dead && n > 0, ev.published && n == 0:
			s.failf("event %d: %d times in the topic, published %v", ev.number, n, ev.published)
		case n > 1 && !((s.broker.Forgetful || ev.dropped) && ev.unknown):
			s.failf("event %d: %d times in the topic", ev.number, n)
		}
	}
}
