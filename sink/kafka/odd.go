package kafka

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// An odd answer is one that no working broker gives: CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, or a code that has no row.
// It does not say whether the broker, the partition or one record is at fault; brokers have answered so to a single
// record that they stumbled over. So such a batch is neither tried forever nor is anybody blamed at first:
//
//   - It is sent again, the same, up to oddTries times while other batches are taken, or oddPatience times in any case.
//   - Then it is refused without a name, and the engine narrows it, as it does with other refusals. If it may have been
//     written, its producer id is given up (K2) and its records count as possible duplicates.
//   - A record that is alone and still odd is refused as Transient. It is guilty if its partition took something else
//     between its last odd answers; if not, the refusal is Doubtful, and it is set aside so that something else can be
//     tried.
const (
	oddTries    = 10
	oddPatience = 60               // with the engine's pauses, about a minute
	oddNarrowed = 2                // for what is left of a batch that was given up
	oddSilence  = 10 * time.Second // between two words about one partition's odd answers
)

// Odd is an answer that no working broker gives, for the hook.
type Odd struct {
	Topic     string
	Partition int32
	Tries     int // of this batch that were answered so
	Err       error
}

// oddness counts the odd answers of an attempt.
type oddness struct {
	tries int
	since time.Time
	// guilty: the partition took something between the odd answer before this attempt's first one and that.
	guilty bool
}

// odd deals with an odd answer to the attempt. It says whether the batch is given up, and fills in the outcome then.
func (d *Driver) odd(f flight, a *attempt, m codes.Meaning, o *sink.Outcome) (givenUp bool) {
	b, p, now := f.batch, f.partition, time.Now()
	d.stats.unexpected.Add(1)
	if a.odd.tries == 0 {
		a.odd.since = now
		a.odd.guilty = !p.lastOdd.IsZero() && p.lastAccepted.After(p.lastOdd)
	}
	a.odd.tries++
	p.lastOdd = now
	if d.config.Hooks.Odd != nil && now.Sub(p.oddSaid) >= oddSilence {
		p.oddSaid = now
		d.config.Hooks.Odd(Odd{b.Topic, b.Partition, a.odd.tries, o.Err})
	}
	enough := oddPatience
	switch {
	case b.Narrowed:
		enough = oddNarrowed
	case a.odd.guilty || after(d.lastAccepted.Load(), a.odd.since):
		enough = oddTries
	}
	if a.odd.tries < enough {
		return false
	}
	reason := &sink.Reason{
		Class: m.Class, Code: m.Name, Doubtful: !a.odd.guilty,
		Text: fmt.Sprintf("answered %d times in a row: %v", a.odd.tries, o.Err),
	}
	if a.uncertain || m.Verdict == sink.Unknown {
		a.doubt()
		d.abandon(p, m.Name, a)
	}
	*o = sink.Outcome{Verdict: sink.Refused, Reasons: []*sink.Reason{reason}, Code: m.Name}
	return true
}
