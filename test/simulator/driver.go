package simulator

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// driver is the cluster as one process reaches it: an idempotent producer, in so far as a batch that comes again after
// an unknown outcome is written once.
type driver struct {
	p       *process
	keyless int
}

func newDriver(p *process) *driver { return &driver{p: p} }

// attempts is kept in Batch.State by the driver.
type attempts struct {
	batch   *sink.Batch
	records []*row
	copies  []*row // of dead letters
	number  int
	serial  int  // of the process's take-over at the first attempt
	closed  bool // it has a definite outcome
	written bool
	offset  int64
}

// Partitions implements [sink.Driver].
func (d *driver) Partitions(topic string) (int, error) {
	w := d.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.cluster.topics[topic]
	if t == nil || t.missing {
		return 0, errGone{}
	}
	return len(t.partitions), nil
}

// Partition implements [sink.Driver].
func (d *driver) Partition(r *sink.Record, partitions int) int32 {
	if r.Key == nil {
		d.keyless++ // one call at a time
		return int32(d.keyless % partitions)
	}
	h := fnv.New32a()
	h.Write(r.Key)
	return int32(h.Sum32() % uint32(partitions))
}

// Node implements [sink.Driver].
func (d *driver) Node(topic string, partition int32) int32 {
	w := d.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.cluster.topics[topic]; t != nil && !t.missing && int(partition) < len(t.partitions) {
		return t.partitions[partition].leader
	}
	return -1
}

// Dropped implements [sink.Dropper]: the driver counts what may be in the topic as possibly there twice.
func (d *driver) Dropped(b *sink.Batch) {
	d.p.w.mu.Lock()
	defer d.p.w.mu.Unlock()
	a, ours := b.State.(*attempts)
	if !ours {
		return // of a driver that is made of this one
	}
	a.closed = true
	for _, r := range a.records {
		if r != nil && b.Outcome.Verdict == sink.Unknown {
			r.excused, r.givenUp = true, true
			if r.unrecorded != nil { // it counts as a possible duplicate from now on
				r.unrecorded.unrecorded--
				r.unrecorded = nil
			}
		}
	}
}

// Changed implements [sink.Driver].
func (d *driver) Changed() <-chan struct{} {
	d.p.w.mu.Lock()
	defer d.p.w.mu.Unlock()
	return d.p.w.cluster.changed
}

// Limits implements [sink.Driver].
func (d *driver) Limits(string) (batch, record int) { return 2000, 0 }

// Size implements [sink.Driver].
func (d *driver) Size(r *sink.Record) int { return len(r.Key) + len(r.Value) + len(r.Headers.Block()) }

// Close implements [sink.Driver].
func (d *driver) Close() error { return nil }

// AnsweredSince reports whether brokers answer; what they say of topics is never old.
func (d *driver) AnsweredSince(time.Time) bool {
	d.p.w.mu.Lock()
	defer d.p.w.mu.Unlock()
	return !d.p.w.cluster.down
}

// delivery is one batch of a request.
type delivery struct {
	batch  *sink.Batch
	part   *clusterPartition
	a      *attempts
	answer sink.Outcome
	write  bool // it is to be written when the answer is made
}

// Produce implements [sink.Driver].
func (d *driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	p, w := d.p, d.p.w
	asked := time.Now()
	if err := p.pass(ctx, "produce"); err != nil {
		unknown(batches, err)
		return
	}
	w.mu.Lock()
	w.judgeRequest(p, asked)
	request := make([]delivery, len(batches))
	pause := time.Duration(0)
	for i, b := range batches {
		var wait time.Duration
		request[i], wait = d.receive(node, b)
		pause = max(pause, wait)
	}
	w.mu.Unlock()

	p.sleep(ctx, pause)
	w.mu.Lock()
	if p.dead || ctx.Err() != nil {
		d.cutOff(request)
		w.mu.Unlock()
		if p.pass(ctx, "produce was cut off") == nil {
			unknown(batches, ctx.Err())
		} else {
			unknown(batches, errDead)
		}
		return
	}
	for i := range request {
		d.answer(&request[i])
	}
	w.mu.Unlock()
	if err := p.pass(ctx, "produce ends"); err != nil {
		unknown(batches, err)
	}
}

func unknown(batches []*sink.Batch, err error) {
	for _, b := range batches {
		b.Outcome = sink.Outcome{Verdict: sink.Unknown, Trouble: sink.ClusterTrouble, Pause: true, Err: err}
	}
}

// receive looks at a batch, decides the answer, and writes the batch if it is written as it comes. Called with mu held.
func (d *driver) receive(node int32, b *sink.Batch) (delivery, time.Duration) {
	p, w := d.p, d.p.w
	a := d.attempt(b)
	key := fmt.Sprintf("%s/%d", b.Topic, b.Partition)
	p.requests[key]++
	roll := w.dice(aboutRequest, uint64(p.number), about(key), uint64(p.requests[key]))
	r := delivery{batch: b, part: w.cluster.partition(b), a: a}
	r.answer = d.trouble(node, &r, roll)
	pause := roll.pause(0, one(roll, 0, time.Millisecond, 20*time.Millisecond))
	if roll.chance(w.profile.slowAnswer) && !w.calm {
		w.fault(requestSlow)
		pause = roll.pause(20*time.Millisecond, one(roll, 300*time.Millisecond, 1500*time.Millisecond))
	}
	if r.answer.Verdict == sink.Unanswered && !a.written {
		if outcome := d.refuse(b, a); outcome != nil {
			r.answer = *outcome
		}
	}
	fate := r.answer.Verdict
	switch {
	case fate == sink.Unanswered:
		r.write = true
		if roll.chance(0.5) {
			d.write(&r)
		}
	case fate == sink.Unknown && r.part != nil && roll.chance(0.5):
		if roll.chance(0.5) {
			d.write(&r)
		} else {
			w.after(roll.pause(0, time.Second), func() { d.write(&r) })
		}
	}
	return r, pause
}

// attempt finds or begins the batch's history.
func (d *driver) attempt(b *sink.Batch) *attempts {
	w := d.p.w
	a, known := b.State.(*attempts)
	if !known {
		a = &attempts{batch: b, serial: d.p.serial}
		for _, rec := range b.Records {
			if rec.Topic == w.profile.config.DLQ.Topic {
				a.records = append(a.records, nil)
				a.copies = append(a.copies, w.judgeCopy(d.p, rec))
				continue
			}
			a.records = append(a.records, w.judgeSent(d.p, rec))
		}
		b.State = a
	} else if a.batch != b || len(a.records) != len(b.Records) {
		w.violate("p%d sends another batch for %s/%d after an unknown outcome", d.p.number, b.Topic, b.Partition)
	}
	w.judgeAttempt(d.p, a)
	a.number++
	return a
}

// trouble is the answer when it is not about the records.
func (d *driver) trouble(node int32, r *delivery, roll *dice) sink.Outcome {
	w := d.p.w
	t := w.cluster.topics[r.batch.Topic]
	not := func(err error, whose sink.Trouble, pause bool) sink.Outcome {
		return sink.Outcome{Verdict: one(roll, sink.NotWritten, sink.NotWritten, sink.Unknown), Err: err, Trouble: whose,
			Pause: pause}
	}
	switch {
	case w.cluster.down:
		return not(errAway, sink.ClusterTrouble, true)
	case r.part == nil:
		return not(errNoTopic, sink.TopicTrouble, true)
	case t.forbidden:
		return not(denied{errForbidden}, sink.TopicTrouble, true)
	case r.part.leader != node:
		return not(errLeader, sink.PartitionTrouble, false)
	case r.part.troubled:
		return not(errReplicas, sink.PartitionTrouble, true)
	case w.calm:
	case roll.chance(w.profile.unknown):
		return sink.Outcome{Verdict: sink.Unknown, Err: errTimeout,
			Trouble: one(roll, sink.ClusterTrouble, sink.PartitionTrouble), Pause: roll.chance(0.5)}
	case roll.chance(w.profile.notWritten):
		w.fault(requestNotWritten)
		return sink.Outcome{Verdict: sink.NotWritten, Err: errReplicas,
			Trouble: one(roll, sink.ClusterTrouble, sink.PartitionTrouble), Pause: roll.chance(0.5)}
	}
	return sink.Outcome{}
}

// refuse is the answer when a record of the batch is refused; nil when all are taken.
func (d *driver) refuse(b *sink.Batch, a *attempts) *sink.Outcome {
	w := d.p.w
	o := sink.Outcome{Verdict: sink.Refused}
	for i, r := range a.records {
		if r.refused() {
			o.Guilty = append(o.Guilty, i)
			o.Reasons = append(o.Reasons, reasonOf(r))
		}
	}
	if len(o.Guilty) == 0 {
		return nil
	}
	w.counts.Refusals++
	if !w.profile.named && len(b.Records) > 1 {
		return &sink.Outcome{Verdict: sink.Refused, Reasons: o.Reasons[:1]}
	}
	for _, i := range o.Guilty {
		a.records[i].refusals++
	}
	return &o
}

// refused reports whether the broker would refuse the row's record now.
func (r *row) refused() bool {
	return r != nil && (r.poison == permanent || r.poison == transient) && r.refusals < r.needed
}

func reasonOf(r *row) *sink.Reason {
	if r.poison == permanent {
		return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_RECORD", Text: "refused for good"}
	}
	return &sink.Reason{Class: outbox.Transient, Code: "INVALID_RECORD", Text: "refused for now"}
}

// write puts the batch into its partition, once. Called with mu held.
func (d *driver) write(r *delivery) {
	if r.a.written || r.a.closed || r.part == nil || d.p.w.cluster.partition(r.batch) == nil ||
		slices.ContainsFunc(r.a.records, (*row).refused) {
		return
	}
	d.p.w.cluster.appendBatch(d.p, r.part, r.a)
}

// answer gives the batch its outcome. Called with mu held.
func (d *driver) answer(r *delivery) {
	w, a := d.p.w, r.a
	if r.write {
		d.write(r)
	}
	o := r.answer
	switch {
	case o.Verdict == sink.Unanswered && !a.written: // its topic was deleted in the meantime
		o = sink.Outcome{Verdict: sink.Unknown, Err: errNoTopic, Trouble: sink.TopicTrouble, Pause: true}
	case a.written && o.Verdict != sink.Unknown && o.Verdict != sink.NotWritten:
		o = sink.Outcome{Verdict: sink.Accepted, FirstOffset: a.offset}
	case a.written && o.Verdict == sink.NotWritten:
		o.Verdict = sink.Unknown // an earlier attempt may have been written: no one can say that it was not
	case a.number > 1 && o.Verdict == sink.NotWritten:
		o.Verdict = sink.Unknown
	}
	a.closed = o.Verdict == sink.Accepted || o.Verdict == sink.Refused
	if o.Verdict == sink.Unknown {
		w.counts.UnknownRequests++
	}
	w.note("p%d %s/%d, attempt %d of %s: %s", d.p.number, r.batch.Topic, r.batch.Partition, a.number, ids(a.records),
		verdicts[o.Verdict])
	r.batch.Outcome = o
}

var verdicts = map[sink.Verdict]string{sink.Accepted: "accepted", sink.NotWritten: "not written",
	sink.Unknown: "unknown", sink.Refused: "refused"}

type ids []*row

// String lists the ids.
func (rows ids) String() string {
	text := "["
	for _, r := range rows {
		if r == nil {
			text += " ?"
		} else {
			text += " " + r.name()
		}
	}
	return text + " ]"
}

// cutOff decides what becomes of requests whose process died, or gave up, before the answer.
func (d *driver) cutOff(request []delivery) {
	w := d.p.w
	for i := range request {
		r := &request[i]
		roll := w.dice(aboutRequest, uint64(d.p.number), uint64(i), 99)
		switch {
		case r.answer.Verdict != sink.Unanswered || r.a.written:
		case roll.chance(w.profile.lateAppend):
			w.after(roll.pause(0, 5*time.Second), func() { d.write(r) })
		case roll.chance(0.5):
			d.write(r)
		}
	}
}
