package conditional

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/sink"
)

// outcome is the batch's outcome, given the answer to the last append.
func (l *Log) outcome(s Stream, b *sink.Batch, a result) sink.Outcome {
	offsets := b.State.(*progress).offsets
	front := slices.Index(offsets, -1)
	if front < 0 {
		return sink.Outcome{Verdict: sink.Accepted, FirstOffset: offsets[0], Offsets: apart(offsets)}
	}
	if a.Verdict != sink.Refused {
		if l.mayArrive(b) && a.Verdict == sink.NotWritten && a.Err != nil {
			a.Verdict = sink.Unknown // by an earlier attempt
		}
		o := failed(b, a.Answer)
		o.Prove = a.prove
		return o
	}
	guilty := slices.Index(b.Records, a.guilty)
	if guilty < 0 { // another batch's fault: this one comes again as it is
		err := &trouble{sink.PartitionTrouble, fmt.Errorf("the broker refused another record of the request: %w", a.Reason)}
		return failed(b, Answer{Verdict: sink.NotWritten, Err: err})
	}
	for i := front + 1; i < len(offsets); i++ { // the batch is cut again: what is written behind the front is found again
		if offsets[i] >= 0 {
			l.keep(markOf(s, b.Records[i]), offsets[i], true)
		}
	}
	o := sink.Outcome{Verdict: sink.Refused, Guilty: []int{guilty}, Reasons: []*sink.Reason{a.Reason}, Code: a.Code}
	written(&o, offsets[:front])
	return o
}

// failed is the outcome of a batch that must come again.
func failed(b *sink.Batch, a Answer) sink.Outcome {
	o := sink.Outcome{Verdict: a.Verdict, Err: a.Err, Trouble: sink.TroubleOf(a.Err, sink.ClusterTrouble), Pause: a.Pause,
		Code: a.Code, FirstOffset: -1}
	if a.Err == nil {
		o.Trouble = sink.NoTrouble
	}
	p, ok := b.State.(*progress)
	if !ok {
		return o
	}
	front := max(0, slices.Index(p.offsets, -1))
	written(&o, p.offsets[:front])
	for i := front; i < len(p.offsets); i++ {
		if p.offsets[i] >= 0 {
			o.Beyond = append(o.Beyond, sink.Placed{Index: i, Offset: p.offsets[i]})
		}
	}
	return o
}

// written tells of the front.
func written(o *sink.Outcome, offsets []int64) {
	o.FirstOffset = -1
	if o.Written = len(offsets); o.Written > 0 {
		o.FirstOffset, o.Offsets = offsets[0], apart(offsets)
	}
}

// apart is the offsets, or nil if they follow each other.
func apart(offsets []int64) []int64 {
	for i, offset := range offsets {
		if offset != offsets[0]+int64(i) {
			return offsets
		}
	}
	return nil
}

// trouble is an error that says whose it is.
type trouble struct {
	kind sink.Trouble
	err  error
}

func (t *trouble) Error() string         { return t.err.Error() }
func (t *trouble) Unwrap() error         { return t.err }
func (t *trouble) Trouble() sink.Trouble { return t.kind }
