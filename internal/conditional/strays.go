package conditional

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// strayLimit is how many marks of what was found behind the end are kept until a record claims them: several times
// what a relay can have sent without knowing its fate (limits.max_unrecorded). The oldest are forgotten first.
const strayLimit = 1 << 16

// Outboxes tells the records of the relay's outboxes from those of other relays. The logs of a driver share one. It is
// safe for concurrent use.
type Outboxes struct {
	ours atomic.Pointer[func(source string) bool]
}

// Recognize implements [sink.Recognizer].
func (o *Outboxes) Recognize(ours func(source string) bool) { o.ours.Store(&ours) }

// has reports whether a record with that source, as its header has it, may be of the outboxes. Before it is known which
// those are, any may be.
func (o *Outboxes) has(source string) (is, known bool) {
	ours := o.ours.Load()
	if ours == nil {
		return true, false
	}
	return (*ours)(source), true
}

// open is the strays of our outboxes, by offset.
type open struct {
	strays []stray
	since  atomic.Int64 // when the first of them was found, in nanoseconds; 0: there is none
}

type stray struct {
	offset int64
	found  time.Time
}

func (o *open) add(offset int64) {
	i, _ := o.find(offset)
	o.strays = slices.Insert(o.strays, i, stray{offset, time.Now()})
	o.note()
}

func (o *open) remove(offset int64) {
	i, is := o.find(offset)
	switch {
	case !is:
		return
	case i == 0:
		o.strays = o.strays[1:]
	default:
		o.strays = slices.Delete(o.strays, i, i+1)
	}
	o.note()
}

// cut removes those behind the offset.
func (o *open) cut(offset int64) {
	i, _ := o.find(offset + 1)
	o.strays = o.strays[:i]
	o.note()
}

func (o *open) find(offset int64) (i int, is bool) {
	return slices.BinarySearchFunc(o.strays, offset, func(s stray, at int64) int { return cmp.Compare(s.offset, at) })
}

// first is the offset of the first one; 0: there is none.
func (o *open) first() int64 {
	if len(o.strays) == 0 {
		return 0
	}
	return o.strays[0].offset
}

func (o *open) note() {
	if len(o.strays) == 0 {
		o.strays = nil
		o.since.Store(0)
		return
	}
	o.since.Store(o.strays[0].found.UnixNano())
}

// First keeps, of the log with the name and those that it was called with before, the one with the record of ours that
// was found first, and the time. It may be called at any time.
func First(name *string, since *time.Time, of string, l *Log) {
	ns := l.open.since.Load()
	if at := time.Unix(0, ns); ns != 0 && (since.IsZero() || at.Before(*since)) {
		*name, *since = of, at
	}
}

// found remembers an entry until a record claims it.
func (l *Log) found(f Found) {
	ours, known := l.outboxes.has(f.Source)
	if f.Mark == (Mark{}) || !ours {
		return // none of our records has its mark
	}
	l.keep(f.Mark, f.Offset, known)
}

// keep keeps an entry for the record with the mark. Ours: it is one of our outboxes for certain.
func (l *Log) keep(m Mark, offset int64, ours bool) {
	if len(l.order) >= strayLimit {
		l.claimOne(l.order[0])
		l.order = l.order[1:]
	}
	l.order = append(l.order, m)
	l.strays[m] = append(l.strays[m], offset)
	if ours {
		l.open.add(offset)
	}
}

// claimOne takes the first entry with the mark.
func (l *Log) claimOne(m Mark) (offset int64, found bool) {
	offsets := l.strays[m]
	if len(offsets) == 0 {
		return 0, false
	}
	if len(offsets) == 1 {
		delete(l.strays, m)
	} else {
		l.strays[m] = offsets[1:]
	}
	if len(l.strays) == 0 {
		l.order = nil
	}
	l.open.remove(offsets[0])
	return offsets[0], true
}

// cutStrays forgets what was found behind the offset: it is found again.
func (l *Log) cutStrays(end int64) {
	for m, offsets := range l.strays {
		offsets = slices.DeleteFunc(slices.Clone(offsets), func(offset int64) bool { return offset > end })
		if len(offsets) == 0 {
			delete(l.strays, m)
		} else {
			l.strays[m] = offsets
		}
	}
	l.open.cut(end)
}

func (l *Log) dropStrays() {
	clear(l.strays)
	l.order = nil
	l.open.cut(-1)
}

// claim finds records of the batches that are in the log already.
func (l *Log) claim(s Stream, batches []*sink.Batch) {
	if len(l.strays) == 0 {
		return
	}
	for _, b := range batches {
		p := b.State.(*progress)
		for i, r := range b.Records {
			if p.offsets[i] >= 0 {
				continue
			}
			if offset, found := l.claimOne(markOf(s, r)); found {
				p.offsets[i] = offset
			}
		}
	}
}
