// Package frontier knows, per partition, below which offset all our records are journaled. A start after a crash reads
// the topics back from there. It writes nothing: who saves it takes it. Tested where a relay is killed, in package
// relay and test.
//
// Journal jobs are cut from the results one after another, so when a job and all before it are committed, so is
// everything of a partition in front of where the job's last record of it says that results are complete. Package sink
// says how that is known.
package frontier

import (
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Frontier follows jobs of type J. But for Take and GiveBack one goroutine uses it.
type Frontier[J comparable] struct {
	issued []step[J] // handed to the writers, in order

	mu       sync.Mutex          // guards what follows
	changed  map[partition]int64 // since the last Take
	expected map[partition]int64 // of partitions in which nothing was journaled since: where the process before was
	behind   []Behind            // since the last look
}

// Behind is a partition that was written to below where it was journaled before: its topic was deleted and created
// again, or lost its end.
type Behind struct {
	Topic     string
	Partition int32
	Was, Is   int64 // the next offset
}

// step is a job with where it ends.
type step[J comparable] struct {
	job       J
	ends      *Ends
	committed bool
}

type partition struct {
	topic  string
	number int32
}

// Ends are the ends of the records of each partition in a job.
type Ends []end

type end struct {
	of   partition
	next int64
	past int64 // where the last record ends, which may be further
}

// Note adds a published record to the job, in front of whose offset complete all have results. Records of one batch
// follow each other, so most only extend a run.
func (e *Ends) Note(topic string, number int32, offset, complete int64) {
	if offset < 0 {
		return // the broker could not say; a later record of the partition will
	}
	if n := len(*e); n > 0 {
		if last := &(*e)[n-1]; last.of.number == number && last.of.topic == topic {
			last.next, last.past = complete, offset+1
			return
		}
	}
	*e = append(*e, end{partition{topic, number}, complete, offset + 1})
}

// Issue is called when the job goes to a writer.
func (f *Frontier[J]) Issue(job J, ends *Ends) {
	f.issued = append(f.issued, step[J]{job: job, ends: ends})
}

// Waits reports whether a job is issued that the frontier has not passed.
func (f *Frontier[J]) Waits() bool { return len(f.issued) > 0 }

// Written is called when the job is committed. It returns the jobs that the frontier has passed, which may be used
// again; their ends are empty.
func (f *Frontier[J]) Written(job J) (passed []J) {
	for i := range f.issued {
		if f.issued[i].job == job {
			f.issued[i].committed = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(passed) < len(f.issued) && f.issued[len(passed)].committed {
		s := f.issued[len(passed)]
		for _, e := range *s.ends {
			if f.changed == nil {
				f.changed = map[partition]int64{}
			}
			f.changed[e.of] = e.next
			f.compare(e)
		}
		*s.ends = (*s.ends)[:0]
		passed = append(passed, s.job)
	}
	f.issued = slices.Delete(f.issued, 0, len(passed))
	return passed
}

// Expect notes how far partitions were journaled by the process before.
func (f *Frontier[J]) Expect(topic string, next map[int32]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.expected == nil {
		f.expected = map[partition]int64{}
	}
	for number, offset := range next {
		f.expected[partition{topic, number}] = offset
	}
}

// compare holds the first end of a partition against what was expected. f.mu is held.
func (f *Frontier[J]) compare(e end) {
	was, known := f.expected[e.of]
	if !known {
		return
	}
	delete(f.expected, e.of) // from now on the driver compares
	if e.past <= was {
		f.behind = append(f.behind, Behind{e.of.topic, e.of.number, was, e.past})
	}
}

// TakeBehind hands out, once, the partitions that were found behind.
func (f *Frontier[J]) TakeBehind() []Behind {
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := f.behind
	f.behind = nil
	return behind
}

// Take hands out what changed since the last time. What cannot be saved is given back.
func (f *Frontier[J]) Take() []store.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	offsets := make([]store.Offset, 0, len(f.changed))
	for of, next := range f.changed {
		offsets = append(offsets, store.Offset{Topic: of.topic, Partition: of.number, Next: next})
	}
	clear(f.changed)
	return offsets
}

// GiveBack keeps what was taken and not saved, unless there is something newer.
func (f *Frontier[J]) GiveBack(offsets []store.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range offsets {
		of := partition{o.Topic, o.Partition}
		if _, newer := f.changed[of]; !newer {
			if f.changed == nil {
				f.changed = map[partition]int64{}
			}
			f.changed[of] = o.Next
		}
	}
}
