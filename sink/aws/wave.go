package aws

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// waveLimit is the most entries of a wave.
	waveLimit = 500
	// stint is how long one call begins waves, so that the engine asks again whether it may send. It is a little more than
	// a wave takes.
	stint = 50 * time.Millisecond
	// openPatience is how old the permission to send may be when the destination is found at last: a process that was
	// frozen in the meantime must ask again.
	openPatience = time.Second
)

// progress is Batch.State: what became of each record. It may be longer than the batch, by the front that the engine
// was told of.
type progress struct {
	done   []bool
	doubt  []time.Time    // since when the service may have taken it, unknown to us; zero: it has not
	faults []*sink.Reason // why the service refused it
	single bool           // a request was refused whole for its contents: each entry goes alone, to find the guilty
}

// produce sends what is not taken of the batch, wave by wave, for as long as a stint.
func (e *destination) produce(ctx context.Context, b *sink.Batch) {
	p, _ := b.State.(*progress)
	if p != nil {
		told := len(p.done) - len(b.Records)
		p.done, p.doubt, p.faults = p.done[told:], p.doubt[told:], p.faults[told:]
	} else if b.Outcome = e.judge(b); b.Outcome.Verdict == sink.Refused {
		return
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		t := &trouble{verdict: sink.NotWritten, of: sink.ClusterTrouble, err: context.Cause(ctx)}
		b.Outcome = p.failed(t)
		return
	}
	defer func() { e.turn <- struct{}{} }()
	if p == nil {
		p = e.begin(b.Records)
		b.State = p
	}
	for began := time.Now(); ; {
		wave := p.wave(b.Records)
		if len(wave) == 0 {
			b.Outcome = sink.Outcome{Verdict: sink.Accepted, FirstOffset: -1}
			return
		}
		if wave[0] > 0 && time.Since(began) > stint {
			b.Outcome = sink.Outcome{Verdict: sink.NotWritten, Written: wave[0], FirstOffset: -1}
			return
		}
		t := e.prepare(ctx, began)
		if t == nil {
			t = e.send(ctx, b.Records, p, wave)
		}
		switch {
		case t != nil:
			b.Outcome = p.failed(t)
			return
		case p.refused(&b.Outcome):
			e.remember(b.Records, p)
			return
		}
	}
}

// begin is the progress of a new batch. What was taken beside a refused record is known to be there.
func (e *destination) begin(records []*sink.Record) *progress {
	n := len(records)
	p := &progress{done: make([]bool, n), doubt: make([]time.Time, n), faults: make([]*sink.Reason, n)}
	if len(e.taken) == 0 {
		return p
	}
	for i, r := range records {
		id := e.driver.config.identity(r)
		if _, taken := e.taken[id]; taken {
			p.done[i] = true
			delete(e.taken, id)
		}
	}
	return p
}

// remember records what was taken behind a refused record: the engine hands those records in again in another batch.
func (e *destination) remember(records []*sink.Record, p *progress) {
	e.taken = make(map[string]struct{})
	for i, r := range records {
		if p.done[i] && i >= p.front() {
			e.taken[e.driver.config.identity(r)] = struct{}{}
		}
	}
}

// prepare makes sure of credentials and the destination.
func (e *destination) prepare(ctx context.Context, began time.Time) *trouble {
	if err := e.driver.login.ready(ctx); err != nil {
		return &trouble{verdict: sink.NotWritten, of: sink.ConfigurationTrouble, err: err, code: "NO_CREDENTIALS"}
	}
	if t := e.open(ctx); t != nil {
		return t
	}
	if took := time.Since(began); took > stint+openPatience {
		return &trouble{verdict: sink.NotWritten, of: sink.PartitionTrouble, err: fmt.Errorf(
			"look for %s: it took %v, and another relay may have the slot since this one might send",
			e.driver.service.Place(e.topic), took)}
	}
	return nil
}

// judge says why the record cannot be an entry.
func (d *Driver) judge(r *sink.Record) (reason *sink.Reason) {
	defer sink.Recover(&reason)
	return d.service.Judge(r)
}

// judge looks at every record before the first is sent.
func (e *destination) judge(b *sink.Batch) (o sink.Outcome) {
	for i, r := range b.Records {
		if reason := e.driver.judge(r); reason != nil {
			o.Verdict, o.Unsent = sink.Refused, true
			o.Guilty, o.Reasons = append(o.Guilty, i), append(o.Reasons, reason)
		}
	}
	return o
}

// wave is the next records to be sent, by index: each key once.
func (p *progress) wave(records []*sink.Record) (wave []int) {
	keys := make(map[string]struct{})
	for i, r := range records {
		if p.done[i] {
			continue
		}
		if _, taken := keys[string(r.Key)]; taken && r.Key != nil || len(wave) == waveLimit {
			break
		}
		if r.Key != nil {
			keys[string(r.Key)] = struct{}{}
		}
		wave = append(wave, i)
	}
	return wave
}

// chunks cuts a wave into requests.
func (e *destination) chunks(records []*sink.Record, p *progress, wave []int) (chunks [][]int) {
	most := maxEntries
	if p.single {
		most = 1
	}
	bytes := 0
	for _, i := range wave {
		size := e.driver.service.Size(records[i])
		if n := len(chunks) - 1; n < 0 || len(chunks[n]) == most || bytes+size > e.driver.config.MaxBytes {
			chunks, bytes = append(chunks, nil), 0
		}
		n := len(chunks) - 1
		chunks[n], bytes = append(chunks[n], i), bytes+size
	}
	return chunks
}

// send sends a wave, and returns the gravest of what kept some of it from being taken; entries at fault apart.
func (e *destination) send(ctx context.Context, records []*sink.Record, p *progress, wave []int) (worst *trouble) {
	chunks := e.chunks(records, p, wave)
	troubles := make([]*trouble, len(chunks))
	group(chunks, e.driver.config.Requests, func(n int) { troubles[n] = e.request(ctx, records, p, chunks[n]) })
	for _, t := range troubles {
		switch {
		case t == nil:
		case t.verdict == sink.Refused: // more than one entry: each goes alone in the next wave
			p.single = true
		default:
			if t.missing {
				e.address = ""
			}
			worst = t.graver(worst)
		}
	}
	return worst
}

// request sends a chunk. Requests run at the same time, and each touches the progress of its own records only.
func (e *destination) request(ctx context.Context, records []*sink.Record, p *progress, chunk []int) (worst *trouble) {
	d := e.driver
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	var reached atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { reached.Store(true) },
	})
	some, began := make([]*sink.Record, len(chunk)), time.Now()
	for n, i := range chunk {
		some[n] = records[i]
	}
	failed, err := d.service.Send(ctx, e.address, some)
	if reached.Load() {
		e.repeated(p, chunk, began)
	}
	if err == nil {
		d.Reached()
	}
	for n, i := range chunk {
		what := err
		if err == nil && failed != nil {
			what = failed[n]
		}
		if what == nil {
			p.done[i], p.doubt[i] = true, time.Time{}
			continue
		}
		t := d.explain(e.topic, what)
		switch {
		case t.verdict == sink.Refused && err != nil && len(chunk) > 1:
			return t
		case t.verdict == sink.Refused:
			p.faults[i] = t.reason
		case t.verdict == sink.Unknown && !reached.Load():
			t.verdict = sink.NotWritten
			worst = t.graver(worst)
		default:
			if t.verdict == sink.Unknown && p.doubt[i].IsZero() {
				p.doubt[i] = began
			}
			worst = t.graver(worst)
		}
	}
	return worst
}

// repeated counts what of a request that has left may be there twice.
func (e *destination) repeated(p *progress, chunk []int, began time.Time) {
	d := e.driver
	for _, i := range chunk {
		since := p.doubt[i]
		remembered := d.service.Deduplicates(e.topic) && began.Add(d.config.Timeout).Before(since.Add(interval))
		if since.IsZero() || remembered {
			continue
		}
		d.duplicates.Add(1)
		p.doubt[i] = began
	}
}

// front is how many records at the front are taken.
func (p *progress) front() (n int) {
	for n < len(p.done) && p.done[n] {
		n++
	}
	return n
}

// refused reports whether the service refused records as at fault, and makes that the outcome. Everything else of their
// wave is taken.
func (p *progress) refused(o *sink.Outcome) bool {
	refused := sink.Outcome{Verdict: sink.Refused, Written: p.front(), FirstOffset: -1}
	for i, reason := range p.faults {
		if reason != nil {
			refused.Guilty, refused.Reasons = append(refused.Guilty, i), append(refused.Reasons, reason)
			refused.Code = reason.Code
		}
	}
	if len(refused.Guilty) == 0 {
		return false
	}
	*o = refused
	return true
}

// failed is the outcome of a batch that must come again.
func (p *progress) failed(t *trouble) sink.Outcome {
	o := sink.Outcome{Verdict: sink.NotWritten, Err: t.err, Trouble: t.of, Code: t.code, FirstOffset: -1, Pause: true}
	if p == nil {
		return o
	}
	o.Written = p.front()
	clear(p.faults) // they go again with the rest of their wave
	for i := o.Written; i < len(p.done); i++ {
		switch {
		case p.done[i]:
			o.Beyond = append(o.Beyond, sink.Placed{Index: i, Offset: -1})
		case !p.doubt[i].IsZero():
			o.Verdict = sink.Unknown
		}
	}
	return o
}
