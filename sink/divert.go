package sink

import (
	"cmp"
	"fmt"
	"time"
)

// Hold makes the lane a held one, if it is not, as if one of its records had been rejected, and returns its current
// generation: for lanes whose records the submitter still holds from an earlier term. A key is needed.
func (e *Engine) Hold(of Lane) (generation uint64) {
	if of.Key == nil {
		panic("sink: Hold without a key")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.makeHeld(e.topicOf(of.Topic), of).generation
}

// makeHeld returns a lane of the topic, held from now on if it was not.
func (e *Engine) makeHeld(t *topic, of Lane) *lane {
	name := laneName{of.Source, string(of.Key)}
	l := t.held[name]
	if l == nil {
		if t.held == nil {
			t.held = make(map[laneName]*lane)
		}
		e.generations++
		l = &lane{generation: e.generations}
		t.held[name] = l
	}
	return l
}

// WholeTopic stands for all partitions of a topic in [Engine.Divert].
const WholeTopic = -1

// Divert gives back, as Held, what is not sent of a topic or of one of its partitions, now and, while it is on,
// whatever is submitted for it, so that it does not fill the window. The lanes of these records are held from then on,
// one by one, until they are released; a record without a key comes back with generation 0 and no lane. A batch that
// failed goes back as well, now or after its next attempt: see giveBack. Retries are not diverted, nor is a record
// whose Probe is set: one of them shows when the trouble is over ([TroubleReport].Probe).
func (e *Engine) Divert(topicName string, partition int32, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topicOf(topicName)
	if partition == WholeTopic {
		t.diverted = on && t.refused == nil
	} else if partition >= 0 && int(partition) < len(t.partitions) {
		t.partitions[partition].diverted = on
	}
	if !on {
		for _, p := range t.partitions {
			if !t.diverted && !p.diverted {
				p.trust()
			}
		}
		return
	}
	e.giveAllBack(t)
	for _, p := range t.partitions {
		if t.diverted || p.diverted {
			e.divertQueue(p)
		}
	}
	e.sift(t)
	e.switchIfDrained(t)
	signal(e.arrived)
}

// divertQueue gives the partition's unsent records back.
func (e *Engine) divertQueue(p *partition) {
	suspects := p.narrow
	for i := range p.queue.length { // once around
		r := p.queue.pop()
		size := int(r.engine.size)
		if !e.divert(p.topic, r) {
			p.queue.push(r)
			continue
		}
		if i < suspects {
			p.narrow--
		}
		p.queueBytes -= size
		p.topic.queued--
	}
}

// divert gives a record back as Held unless it was retried, inserted or is about to be rejected by the broker's
// word.
func (e *Engine) divert(t *topic, r *Record) bool {
	if r.engine.generation != 0 || r.engine.alone || r.Probe || r.Reason != nil && !r.Doomed {
		return false
	}
	if r.Key != nil {
		held := t.held[laneName{r.Source, string(r.Key)}] != nil
		e.holdQueued(r, e.makeHeld(t, r.Lane()))
		r.WasHeld = held
		return true
	}
	r.Partition, r.Offset = -1, -1
	e.finish(r, Held, time.Now())
	signal(e.arrived)
	return true
}

// TroubleReport is a topic or a partition that keeps records waiting, or that is diverted.
type TroubleReport struct {
	Topic     string
	Partition int32 // WholeTopic: the topic itself
	Kind      Trouble
	Since     time.Time // zero when it is well
	Reason    string
	Diverted  bool
	Well      bool // nothing is known against sending there now
	// Full reports whether its records fill its share of the window: those in trouble may hold half of it together, in
	// equal parts, so that what is submitted for others finds room for as long as it takes to divert them.
	Full bool
	// Slow reports that its requests take long, though none failed. Alone says of a slow one that others are not: requests
	// that were sent later have been answered in time for a while; or it fills the window, so that nothing is sent to
	// others, which were well before. Else the brokers, or this machine, may be slow as a whole, and diverting would make
	// that worse.
	Slow, Alone bool
	// Probe means that the engine holds none of its records, and that only another attempt shows whether it is well: the
	// submitter hands in one record for partition ProbeAt, by [Engine.Resume], or with Record.Probe set.
	Probe   bool
	ProbeAt int32
}

const (
	// passedPatience is the time after which a slow request counts as alone, while later ones are answered: after a
	// pause of everything, be it the brokers' or this machine's, answers come one after the other.
	passedPatience = time.Second
	// restingPatience is the same while nothing is sent to others.
	restingPatience = 3 * time.Second
	// restsWell is the age of its last accepted batch up to which a partition at rest counts as available.
	restsWell = time.Minute
)

// Troubles lists what is in trouble and what is diverted.
func (e *Engine) Troubles() []TroubleReport {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	ill := e.ill(now)
	var reports []TroubleReport
	for _, t := range e.topics {
		whole := e.reportWhole(t, now)
		for _, p := range t.partitions {
			r := e.report(p, ill, now)
			if r.Kind == TopicTrouble && !r.Since.IsZero() && t.takes(r.Since) {
				r.Kind = PartitionTrouble
			}
			// One partition's answer speaks for the topic.
			speaks := !r.Well && (r.Kind == TopicTrouble || t.err != nil || t.diverted && p.unproved())
			if speaks {
				whole.hear(r)
			}
			// One that is diverted is tried by itself, be the topic diverted or not.
			if r.Diverted || !speaks && !r.Since.IsZero() {
				reports = append(reports, r)
			}
		}
		if whole.Diverted || !whole.Since.IsZero() {
			reports = append(reports, whole)
		}
	}
	return reports
}

// hear takes in the report of a partition that speaks for the whole topic.
func (whole *TroubleReport) hear(r TroubleReport) {
	whole.Well = false
	if whole.Diverted && r.Probe {
		whole.Probe, whole.ProbeAt = true, r.Partition
	}
	if !r.Since.IsZero() && (whole.Since.IsZero() || r.Since.Before(whole.Since)) { // zero: nothing of it waits
		whole.Since, whole.Reason = r.Since, r.Reason
	}
}

// reportWhole tells of the topic itself. A new number of partitions takes effect in a moment, as a rule, and nothing is
// told of it; but not while one that the topic had does not answer, and what is new of the topic waits for that.
func (e *Engine) reportWhole(t *topic, now time.Time) TroubleReport {
	whole := TroubleReport{Topic: t.name, Partition: WholeTopic, Kind: t.trouble(), Diverted: t.diverted,
		Well: len(t.partitions) > 0 && t.err == nil && t.next == 0}
	switch {
	case whole.Well || t.waiting.length == 0 && !t.diverted:
	case t.next == 0:
		whole.Since, whole.Reason = t.since, because(t.unknown(), t.err)
	default:
		for _, p := range t.partitions {
			if slow, _ := p.slowSince(now); e.ails(p) || slow && p.hasWork() {
				whole.Since, whole.Reason = t.since, because(fmt.Sprintf(
					"topic %q has %d partitions instead of %d, and what was sent to partition %d before is not answered",
					t.name, t.next, len(t.partitions), p.number), cmp.Or(p.err, t.err))
			}
		}
	}
	return whole
}

// trouble classifies why the topic is not usable. A topic that the brokers have not answered about waits for
// them.
func (t *topic) trouble() Trouble {
	if t.err == nil && len(t.partitions) == 0 {
		return ClusterTrouble
	}
	return troubleOf(t.err)
}

// takes reports whether a partition of the topic is available and has accepted something since then: what others answer
// about the topic is not so, and theirs alone.
func (t *topic) takes(since time.Time) bool {
	for _, p := range t.partitions {
		if p.failures == 0 && p.accepted.After(since) {
			return true
		}
	}
	return false
}

// report describes one partition; ill counts those in trouble or slow that have work.
func (e *Engine) report(p *partition, ill int, now time.Time) TroubleReport {
	r := TroubleReport{Topic: p.topic.name, Partition: p.number, Kind: p.kind, Diverted: p.diverted}
	full := e.fills(p, ill)
	slow, since := p.slowSince(now)
	leaderless := e.driver.Node(p.topic.name, p.number) < 0
	switch {
	case p.failures > 0 || leaderless:
		if p.failures == 0 {
			r.Kind = PartitionTrouble
		}
		if p.hasWork() || p.diverted || p.unproved() {
			r.Since, r.Reason, r.Full = p.since, p.reason(), full
		}
		r.Probe, r.ProbeAt = p.unproved() && !p.hasWork() && !leaderless, p.number
	case slow && (full || p.diverted && p.batch != nil): // slow is trouble only of a partition that is in others' way
		r.Kind, r.Since, r.Full, r.Slow, r.Alone = PartitionTrouble, since, full, true, e.slowAlone(p, now)
		r.Reason = fmt.Sprintf("%s: its requests take longer than %v, and %d records wait", p.place(),
			slowRequest, p.queue.length)
	default:
		r.Well = true
	}
	return r
}

// noteSpeed takes in how long a request of the partition took.
func (p *partition) noteSpeed(now time.Time, took time.Duration) {
	if took < slowRequest {
		p.slow = time.Time{}
	} else if p.slow.IsZero() {
		p.slow = now.Add(-took)
	}
}

// slowAlone is [TroubleReport.Alone]. That the partition's present request was passed is noted when it is seen here
// first.
func (e *Engine) slowAlone(p *partition, now time.Time) bool {
	late := p.busy && now.Sub(p.sentAt) >= slowRequest
	if late && p.passed.IsZero() && e.prompt.After(p.sentAt) {
		p.passed = now
	}
	if !p.passed.IsZero() {
		return now.Sub(p.passed) >= passedPatience
	}
	return late && now.Sub(p.sentAt) >= restingPatience && e.someRestWell(now)
}

// someRestWell reports whether some partition has nothing to send and took its last batch lately and in time.
func (e *Engine) someRestWell(now time.Time) bool {
	for _, t := range e.topics {
		for _, p := range t.partitions {
			if !p.hasWork() && p.slow.IsZero() && now.Sub(p.accepted) < restsWell && e.driver.Node(t.name, p.number) >= 0 {
				return true
			}
		}
	}
	return false
}

// slowSince reports whether the partition's requests are slow, or its present one is, and since when.
func (p *partition) slowSince(now time.Time) (slow bool, since time.Time) {
	switch {
	case !p.slow.IsZero():
		return true, p.slow
	case p.busy && now.Sub(p.sentAt) >= slowRequest:
		return true, p.sentAt
	}
	return false, time.Time{}
}

// ill counts the partitions that have work and are in trouble or slow.
func (e *Engine) ill(now time.Time) (n int) {
	for _, t := range e.topics {
		for _, p := range t.partitions {
			if slow, _ := p.slowSince(now); slow && p.hasWork() || e.ails(p) {
				n++
			}
		}
	}
	return n
}

// ails reports whether the partition has work that cannot be sent before its trouble is over.
func (e *Engine) ails(p *partition) bool {
	return p.hasWork() && (p.failures > 0 || e.driver.Node(p.topic.name, p.number) < 0)
}

// fills reports whether the partition's records take its share of the window for partitions in trouble.
func (e *Engine) fills(p *partition, ill int) bool {
	events, bytes := p.queue.length, p.queueBytes
	if p.batch != nil {
		events, bytes = events+len(p.batch.Records), bytes+p.batch.Bytes
	}
	parts := 2 * max(ill, 1)
	return events*parts >= e.config.MaxEvents || bytes*parts >= e.config.MaxBytes
}

// WellLately reports whether some partition had a batch accepted within that time, is not slow, and has not failed
// since: trouble elsewhere is then not the trouble of everything.
func (e *Engine) WellLately(within time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, t := range e.topics {
		for _, p := range t.partitions {
			if slow, _ := p.slowSince(now); !slow && p.failures == 0 && !p.accepted.IsZero() &&
				time.Since(p.accepted) < within && e.driver.Node(t.name, p.number) >= 0 {
				return true
			}
		}
	}
	return false
}

// Diverted reports whether the topic or any of its partitions is diverted.
func (e *Engine) Diverted(topic string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topics[topic]
	if t == nil {
		return false
	}
	for _, p := range t.partitions {
		if p.diverted {
			return true
		}
	}
	return t.diverted
}

// Given counts all results so far, including those that Results has not returned yet.
func (e *Engine) Given() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.given
}
