package conditional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// rounds is how often one call appends again after the log had another end. A log that others write to all the time
	// goes on in the next call.
	rounds = 16
	// endPatience is how old the permission to send may be when something is appended. A process that was frozen
	// in the meantime, or that needs long for what came before, must be asked again whether it may send, which the engine
	// does before each request.
	endPatience = time.Second
)

// ErrWentBack reports that the log ends before an entry that it had: it was deleted and made again, or its server lost
// what it had acknowledged.
var ErrWentBack = errors.New("the log ends before its last acknowledged entry")

// Log tracks the end of one log.
//
// Invariants:
//
//   - C1: what stands in the log up to end was acknowledged to us, or it was read and is in strays until it is claimed.
//   - C2: an append expects end, and is sent only while it is not in doubt whether something stands behind it.
//   - C3: a record is appended only if no stray has its mark; a stray is claimed once.
//   - C4: after an end that was asked for nothing is appended before it is proved that no one else could have written
//     when it was told: that could not be told from what stood there before, and no condition would fail.
//   - C5: of a [Keeper], a record is told to be written only once the log is kept up to it. What is behind safe counts
//     as unknown when that fails: it is read again, from whichever server answers then.
//   - C6: no record of ours that was found and not claimed stands before [sink.Outcome.Open].
type Log struct {
	// WentBack is told when the log's end went back. It is set before the first use and must be quick.
	WentBack func(was, is int64)

	turn chan struct{} // holds a token while no one works on the log; its taker owns the rest

	end      int64
	safe     int64     // up to where the log is kept; of a Keeper only
	known    bool      // end is set
	doubt    bool      // something may stand behind end
	accepted int       // appends
	told     time.Time // when the broker had told the end, until that is proved; see C4

	strays map[Mark][]int64 // offsets of entries that no one claimed, in order
	order  []Mark           // of strays, oldest first; may name what was claimed

	outboxes *Outboxes
	open     open // of strays, those of our outboxes
}

// NewLog returns a log whose end is unknown, for records of the outboxes.
func NewLog(outboxes *Outboxes) *Log {
	l := &Log{turn: make(chan struct{}, 1), strays: make(map[Mark][]int64), outboxes: outboxes}
	l.turn <- struct{}{}
	return l
}

// progress is Batch.State: the offsets of the batch's records, -1 for those that are not known to be written. It may be
// longer than the batch, by the front that the engine was told of.
type progress struct {
	offsets []int64
	sent    int // accepted and one more, when it went into an append whose outcome is not known; 0: it never did
}

// mayArrive reports whether an earlier append of the batch may still arrive: it expects the end that the log had then,
// and fails once another append was accepted. Having read the log since then proves nothing.
func (l *Log) mayArrive(b *sink.Batch) bool { return b.State.(*progress).sent > l.accepted }

// Start leaves the log at the end up to which it was read before the first append. Once an end is known it changes
// nothing: what stands behind the older one is found by the next append. Without it the first call asks for the end,
// and appends nothing.
func (l *Log) Start(ctx context.Context, end int64) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	if !l.known {
		l.end, l.safe, l.known = end, end, true
	}
	return nil
}

// Defer leaves the log at an end behind which something may stand that is not journaled, because it could not be read.
// The first append looks, and takes what it finds of its records for written. Everything up to the end is known.
func (l *Log) Defer(ctx context.Context, end int64) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	if !l.known || end < l.end {
		l.end = end
	}
	l.safe = l.end
	l.known, l.doubt, l.told = true, true, time.Time{}
	return nil
}

// proved looks whether one of the batches comes with a permission of after the end was told. It says of when one must
// be, zero if there is nothing to prove.
func (l *Log) proved(batches []*sink.Batch) time.Time {
	if slices.ContainsFunc(batches, func(b *sink.Batch) bool { return !b.Proved.Before(l.told) }) {
		l.told = time.Time{}
	}
	return l.told
}

// Forget makes the end unknown again, for another term that begins with [Log.Start] or knows that nothing is missing.
// It must not be called while a request is out.
func (l *Log) Forget() {
	<-l.turn
	defer l.give()
	l.known, l.doubt, l.told = false, false, time.Time{}
	l.dropStrays()
}

func (l *Log) take(ctx context.Context) error {
	select {
	case <-l.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier request to the log: %w", context.Cause(ctx))
	}
}

func (l *Log) give() { l.turn <- struct{}{} }

// Produce appends the batches, which are all of this log, and gives each its outcome. It has the contract of
// [sink.Driver.Produce].
func (l *Log) Produce(ctx context.Context, s Stream, batches []*sink.Batch) {
	began := time.Now()
	for _, b := range batches { // also for an outcome without a turn, or a front counts as written once more
		prepare(b)
	}
	if err := l.take(ctx); err != nil {
		for _, b := range batches {
			verdict := sink.NotWritten
			if b.State.(*progress).sent > 0 { // what was accepted since is not ours to read
				verdict = sink.Unknown
			}
			b.Outcome = failed(b, Answer{Verdict: verdict, Err: err, Pause: true})
		}
		return
	}
	defer l.give()
	answer := result{Answer: Answer{Verdict: sink.NotWritten}}
	if time.Since(began) <= endPatience { // else an earlier request was slow, and the engine must ask again
		answer = l.append(ctx, s, batches, began)
	}
	if err := l.keepSafe(ctx, s, batches); err != nil {
		for _, b := range batches {
			b.Outcome = failed(b, Answer{Verdict: sink.Unknown, Err: err, Pause: true})
			b.Outcome.Open = l.open.first()
		}
		return
	}
	for _, b := range batches {
		b.Outcome = l.outcome(s, b, answer)
	}
	first := l.open.first() // what was refused may have left more
	for _, b := range batches {
		b.Outcome.Open = first
	}
}

// prepare makes the batch's progress, or brings it in line with what is left of the batch.
func prepare(b *sink.Batch) {
	p, _ := b.State.(*progress)
	if p == nil {
		p = &progress{offsets: make([]int64, len(b.Records))}
		for i := range p.offsets {
			p.offsets[i] = -1
		}
		b.State = p
	}
	p.offsets = p.offsets[len(p.offsets)-len(b.Records):]
}

// result is an answer with the record that it blames.
type result struct {
	Answer
	guilty *sink.Record
	prove  time.Time // what the next attempt needs a permission of after
}

// append appends what is not written yet, as often as the log's end turns out to be another. The permission to send was
// given when it began.
func (l *Log) append(ctx context.Context, s Stream, batches []*sink.Batch, began time.Time) result {
	for range rounds {
		if err := l.learn(ctx, s); err != nil {
			return result{Answer: Answer{Verdict: sink.NotWritten, Err: err, Pause: true}}
		}
		l.claim(s, batches)
		records, places := undone(batches)
		if len(records) == 0 {
			return result{Answer: Answer{Verdict: sink.Accepted}}
		}
		if prove := l.proved(batches); !prove.IsZero() {
			return result{Answer: Answer{Verdict: sink.NotWritten}, prove: prove}
		}
		if took := time.Since(began); took > endPatience {
			return result{Answer: Answer{Verdict: sink.NotWritten, Err: &trouble{sink.PartitionTrouble,
				fmt.Errorf("learn the log's end: it took %v; another relay may have the slot since this one might send", took)}}}
		}
		a := l.send(ctx, s, records, places, began)
		switch {
		case a.Verdict == sink.Refused:
			return result{Answer: a, guilty: records[a.Guilty]}
		case a.Moved:
			l.doubt = true
			continue
		case a.Verdict == sink.Unknown:
			l.doubt = true
			for _, b := range batches {
				b.State.(*progress).sent = l.accepted + 1
			}
		}
		return result{Answer: a}
	}
	err := &trouble{sink.PartitionTrouble,
		errors.New("other writers keep appending to the log: each append found another end")}
	return result{Answer: Answer{Verdict: sink.NotWritten, Err: err}}
}

// send appends the records, in portions for as long as the permission to send is young. What is left then is not
// written, and nothing is wrong.
func (l *Log) send(
	ctx context.Context, s Stream, records []*sink.Record, places []*int64, began time.Time,
) (a Answer) {
	portion := s.Portion()
	if portion <= 0 {
		portion = len(records)
	}
	for first := 0; first < len(records); first += portion {
		if first > 0 && time.Since(began) > endPatience {
			return Answer{Verdict: sink.NotWritten}
		}
		some := records[first:min(first+portion, len(records))]
		a = s.Append(ctx, l.end, some)
		for i, offset := range a.Offsets {
			*places[first+i] = offset
			l.end = max(l.end, offset)
		}
		if a.Verdict == sink.Accepted {
			l.accepted++
		}
		if a.Verdict != sink.Accepted {
			a.Guilty += first
			return a
		}
		if len(a.Offsets) != len(some) {
			panic(fmt.Sprintf("conditional: an append of %d records was accepted with %d offsets", len(some), len(a.Offsets)))
		}
	}
	return a
}

// learn makes the end known and free of doubt.
func (l *Log) learn(ctx context.Context, s Stream) error {
	if !l.known {
		end, err := s.End(ctx)
		if err != nil {
			return fmt.Errorf("ask for the log's end: %w", err)
		}
		l.end, l.safe, l.known, l.told = end, end, true, time.Now()
		return nil
	}
	if !l.doubt {
		return nil
	}
	end, err := s.Behind(ctx, l.end, func(f Found) {
		l.found(f)
		l.end = max(l.end, f.Offset)
	})
	if errors.Is(err, ErrWentBack) {
		if l.WentBack != nil {
			l.WentBack(l.end, end)
		}
		l.dropStrays()
		l.end, l.safe, l.doubt = end, end, false
		return nil
	}
	if err != nil {
		return fmt.Errorf("read behind the log's known end: %w", err)
	}
	l.end, l.doubt = max(l.end, end), false
	return nil
}

// undone lists the records that are not known to be written, and where their offsets belong.
func undone(batches []*sink.Batch) (records []*sink.Record, places []*int64) {
	for _, b := range batches {
		p := b.State.(*progress)
		for i, r := range b.Records {
			if p.offsets[i] < 0 {
				records = append(records, r)
				places = append(places, &p.offsets[i])
			}
		}
	}
	return records, places
}
