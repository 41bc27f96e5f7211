package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

// sendPatience is how long after the engine's call, besides the time for a new connection, a request may begin to leave
// the process. The engine asked for its permit before the call: a process that was frozen since, or that had to wait
// for a producer id, may not have it any more. A batch that comes too late is NotWritten, and the next attempt has a
// new permit.
const sendPatience = time.Second

// flight is one batch on its way in a request.
type flight struct {
	batch     *sink.Batch
	partition *partition
}

// Produce is [sink.Driver]. The context's end leaves batches Unknown that may have left the process. After it nothing
// is sent.
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	flights := make([]flight, 0, len(batches))
	for _, b := range batches {
		if len(b.Records) == 0 {
			panic(fmt.Sprintf("kafka: a batch without records for %s/%d", b.Topic, b.Partition))
		}
		b.Outcome = sink.Outcome{}
		flights = append(flights, flight{b, d.partitionOf(b.Topic, b.Partition)})
	}
	defer func() {
		for _, f := range flights {
			f.partition.busy.Store(false)
		}
	}()
	if ctx.Err() != nil { // whether anything would still be sent, and answered, would be left to chance
		d.notSent(flights, context.Cause(ctx))
		return
	}
	address, known := d.view.Load().nodes[node]
	if !known {
		d.refreshSoon()
		d.notSent(flights, fmt.Errorf("the cluster lists no broker %d", node))
		return
	}
	d.produce(ctx, node, d.endpoint(address), flights)
}

func (d *Driver) produce(ctx context.Context, node int32, e *endpoint, flights []flight) {
	g := connect.Gate{Until: time.Now().Add(d.config.DialTimeout + sendPatience)}
	ready := d.prepareAll(ctx, e, flights)
	if len(ready) == 0 {
		return
	}
	request := d.request(ready, &g)
	timeout := d.config.RequestTimeout + d.config.RequestTimeout/2
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	alone := ready[0].batch.Alone
	if !alone && !d.config.patient {
		if patience := e.pace.patience(len(ready), request.Size(), time.Now()); patience < timeout {
			request.Patience = patience
		}
	}
	began := time.Now()
	answer, err := e.RoundTrip(limited, request)
	if errors.Is(err, connect.ErrImpatient) {
		e.pace.giveUp(time.Since(began), time.Now())
		d.split(ready, fmt.Errorf("produce to broker %d at %s: %w, more than %v; sending each batch by itself", node,
			e.Address,
			err, request.Patience))
		return
	}
	if err != nil {
		unsent := g.Shut()
		if !unsent && ctx.Err() == nil && (errors.Is(err, os.ErrDeadlineExceeded) ||
			errors.Is(err, context.DeadlineExceeded)) {
			err = fmt.Errorf("no answer in %v: %w", timeout, err)
		}
		d.unanswered(ready, unsent, fmt.Errorf("produce to broker %d at %s: %w", node, e.Address, err))
		return
	}
	e.pace.took(time.Since(began), alone)
	r := answer.(*produce.Response)
	d.answered(ctx, node, ready, r)
	for _, f := range ready { // KIP-219: the broker answers first, and expects the client to wait
		f.batch.Outcome.Throttle = time.Duration(r.ThrottleTimeMs) * time.Millisecond
	}
}

// prepareAll encodes what is not encoded and settles what need not be sent. It returns the rest.
func (d *Driver) prepareAll(ctx context.Context, e *endpoint, flights []flight) []flight {
	ready := make([]flight, 0, len(flights))
	var noProducer error
	for _, f := range flights {
		if f.batch.State == nil && len(f.batch.Records) == 1 {
			if reason := d.tooLarge(ctx, f.batch); reason != nil {
				f.batch.Outcome = sink.Outcome{Verdict: sink.Refused, Reasons: []*sink.Reason{reason}, Code: reason.Code,
					Unsent: true}
				continue
			}
		}
		if noProducer == nil || f.partition.producing {
			noProducer = cmp.Or(d.prepare(ctx, e, f.partition, f.batch), noProducer)
		}
		if !f.partition.producing {
			d.notSent([]flight{f}, noProducer)
			continue
		}
		ready = append(ready, f)
	}
	return ready
}

// request puts the batches into one request, by topic.
func (d *Driver) request(flights []flight, g *connect.Gate) *connect.Produce {
	r := &connect.Produce{
		ID: int32(d.stats.requests.Add(1)), ClientID: d.config.ClientID, Timeout: d.config.RequestTimeout, Gate: g,
	}
	places := make(map[string]int, 1)
	for _, f := range flights {
		i, known := places[f.batch.Topic]
		if !known {
			i = len(r.Topics)
			places[f.batch.Topic] = i
			r.Topics = append(r.Topics, connect.Topic{Name: f.batch.Topic})
		}
		set := f.batch.State.(*attempt).bytes
		r.Topics[i].Partitions = append(r.Topics[i].Partitions, connect.Partition{Number: f.batch.Partition, Set: set})
	}
	return r
}

// unanswered settles batches whose request got no answer: written perhaps, unless no connection ever read them.
func (d *Driver) unanswered(flights []flight, unsent bool, err error) {
	d.lastFailure.Store(sinceStart(time.Now()))
	d.refreshSoon()
	if unsent {
		d.notSent(flights, err)
		return
	}
	d.uncertain(flights, sink.Outcome{Verdict: sink.Unknown, Err: err, Trouble: TroubleOf(err)})
}

// split settles batches whose request was given up because its answer takes unusually long.
func (d *Driver) split(flights []flight, err error) {
	d.stats.split.Add(1)
	d.uncertain(flights, sink.Outcome{Verdict: sink.Unknown, Err: err, Alone: true})
}

// uncertain settles batches that may have been written.
func (d *Driver) uncertain(flights []flight, o sink.Outcome) {
	for _, f := range flights {
		a := f.batch.State.(*attempt)
		a.doubt()
		a.lent = true
		f.partition.uncertain = a
		f.batch.Outcome = o
	}
}

// notSent settles batches that did not leave the process in this attempt.
func (d *Driver) notSent(flights []flight, err error) {
	for _, f := range flights {
		o := sink.Outcome{Verdict: sink.NotWritten, Err: err, Trouble: TroubleOf(err), Pause: true}
		if a, _ := f.batch.State.(*attempt); a != nil && a.uncertain {
			o.Verdict = sink.Unknown // an earlier attempt may have been written
		}
		f.batch.Outcome = o
	}
}

// TroubleOf says whose trouble an error of this package is: also one of Partitions, Ping or CheckProducer, where a
// wrong password shows before any batch is sent.
func TroubleOf(err error) sink.Trouble {
	var broker *BrokerError
	var library kafkago.Error
	switch {
	case connect.IsLoginError(err):
		return sink.ConfigurationTrouble
	case errors.As(err, &broker):
		return codes.Of(broker.Code).Trouble
	case errors.As(err, &library):
		return codes.Of(int16(library)).Trouble
	}
	return sink.ClusterTrouble
}

// answered gives each batch its outcome.
func (d *Driver) answered(ctx context.Context, node int32, flights []flight, r *produce.Response) {
	answers := make(map[topicPartition]*produce.ResponsePartition, len(flights))
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			answers[topicPartition{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	for _, f := range flights {
		answer := answers[topicPartition{f.batch.Topic, f.batch.Partition}]
		if answer == nil {
			answer = &produce.ResponsePartition{ErrorCode: -1, BaseOffset: -1,
				ErrorMessage: "the broker's response omits the partition"}
		}
		d.judge(ctx, node, f, answer)
	}
}

// judge turns the broker's answer into the batch's outcome and does what the code asks for.
func (d *Driver) judge(ctx context.Context, node int32, f flight, r *produce.ResponsePartition) {
	m := codes.Of(r.ErrorCode)
	b, p := f.batch, f.partition
	a := b.State.(*attempt)
	if m.React&codes.RefreshLeader != 0 {
		d.leaderLost(b.Topic, b.Partition, node)
	}
	if m.React&codes.LearnLimit != 0 {
		d.learnNow()
	}
	switch {
	case m.React&codes.NewProducer != 0:
		d.sequenceLost(f, a, r)
		return
	case m.Verdict == sink.Accepted:
		d.accepted(p, b, r.BaseOffset)
		b.Outcome = sink.Outcome{Verdict: sink.Accepted, FirstOffset: r.BaseOffset}
		b.State = nil
		a.recycle()
		return
	case m.Verdict == sink.Refused:
		b.Outcome = d.refusal(ctx, b, m, r)
		if a.uncertain {
			// The engine may cut the batch again, and an earlier attempt may have been written (K2).
			d.abandon(p, m.Name, a)
		}
		b.State = nil
		a.recycle()
		return
	}
	o := sink.Outcome{
		Verdict: m.Verdict,
		Err:     fmt.Errorf("%s/%d at broker %d: %w", b.Topic, b.Partition, node, codes.ErrorOf(r.ErrorCode, r.ErrorMessage)),
		Trouble: m.Trouble,
		Pause:   m.React&codes.RetryAtOnce == 0,
		Code:    m.Name,
	}
	if r.ErrorCode == codes.TopicDenied {
		o.Err = denied{fmt.Errorf("%w; grant it: %s", o.Err, d.config.GrantCommand(b.Topic))}
	}
	if m.React&codes.EncodeAgain != 0 {
		a.discard()
	}
	if m.React&codes.Unexpected != 0 {
		o.Err = fmt.Errorf("%w (a healthy broker does not answer this; see its log)", o.Err)
		if d.odd(f, a, m, &o) {
			b.Outcome, b.State = o, nil
			a.recycle()
			return
		}
	}
	if o.Verdict == sink.Unknown {
		a.doubt()
		p.uncertain = a
	} else if a.uncertain {
		o.Verdict = sink.Unknown
	}
	b.Outcome = o
}

// denied is the error of a topic that we may not write to.
type denied struct{ error }

// Gone implements [sink.Gone]: the topic recognizes a batch by its sequence, but not before we may write again.
func (denied) Gone() bool { return true }

// Unwrap returns the broker's error.
func (d denied) Unwrap() error { return d.error }

// sequenceLost deals with a broker that does not want the producer's sequence any more: the batch goes again at
// sequence 0 of another producer id.
func (d *Driver) sequenceLost(f flight, a *attempt, r *produce.ResponsePartition) {
	m := codes.Of(r.ErrorCode)
	b, p := f.batch, f.partition
	o := sink.Outcome{
		Verdict: sink.NotWritten,
		Err:     fmt.Errorf("%s/%d: %w", b.Topic, b.Partition, codes.ErrorOf(r.ErrorCode, r.ErrorMessage)),
		Trouble: m.Trouble,
		Pause:   m.React&codes.RetryAtOnce == 0,
		Code:    m.Name,
	}
	if a.uncertain {
		o.Verdict = sink.Unknown
	} else if r.ErrorCode == codes.OutOfOrder {
		d.lostData(p)
	}
	d.abandon(p, m.Name, a)
	b.State = nil
	a.recycle()
	b.Outcome = o
}

// refusal is the outcome of a batch that the broker will not take.
func (d *Driver) refusal(ctx context.Context, b *sink.Batch, m codes.Meaning,
	r *produce.ResponsePartition) sink.Outcome {
	o := sink.Outcome{Verdict: sink.Refused, Code: m.Name}
	for _, e := range r.RecordErrors {
		if e.BatchIndex < 0 || int(e.BatchIndex) >= len(b.Records) {
			continue
		}
		text := cmp.Or(e.BatchIndexErrorMessage, cmp.Or(r.ErrorMessage, "the broker gave no reason"))
		o.Guilty = append(o.Guilty, int(e.BatchIndex))
		o.Reasons = append(o.Reasons, &sink.Reason{Class: m.Class, Code: m.Name, Text: text})
	}
	if len(o.Guilty) > 0 {
		return o
	}
	reason := &sink.Reason{Class: m.Class, Code: m.Name, Text: cmp.Or(r.ErrorMessage, "the broker gave no reason")}
	if m.React&codes.LearnLimit != 0 && len(b.Records) == 1 {
		reason = sizeOf(b).reason(d.limitSince(ctx, b.Topic, time.Now()))
		reason.Code = m.Name
	}
	o.Reasons = []*sink.Reason{reason}
	return o
}
