package settle

import (
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

// frontier knows, per partition, below which offset all our records are journaled. A start after a crash reads the
// topics back from there.
//
// Results of a partition come in the order of its offsets, and journal jobs are cut from them one after another, so
// when a job and all before it are committed, so is everything of a partition up to the job's last record of it.
type frontier struct {
	issued []*journalJob // handed to the writers, in order; owned by the settler

	mu      sync.Mutex
	changed map[partitionOf]int64 // since the last take; guarded by mu
}

type partitionOf struct {
	topic  string
	number int32
}

// offsetRun is the end of the records of one partition in a job.
type offsetRun struct {
	of   partitionOf
	next int64
}

// note adds a published record to the job. Records of one batch follow each other, so most only extend a run.
func (f *frontier) note(j *journalJob, r *sink.Record) {
	if r.Offset < 0 {
		return // the broker could not say; a later record of the partition will
	}
	if n := len(j.ends); n > 0 {
		if last := &j.ends[n-1]; last.of.number == r.Partition && last.of.topic == r.Topic {
			last.next = r.Offset + 1
			return
		}
	}
	j.ends = append(j.ends, offsetRun{partitionOf{r.Topic, r.Partition}, r.Offset + 1})
}

// issue is called when the job goes to a writer.
func (f *frontier) issue(j *journalJob) { f.issued = append(f.issued, j) }

// written is called when the job is committed. It returns the jobs that the frontier has passed, which may be used
// anew.
func (f *frontier) written(j *journalJob) (passed []*journalJob) {
	j.committed = true
	n := 0
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, done := range f.issued {
		if !done.committed {
			break
		}
		for _, run := range done.ends {
			if f.changed == nil {
				f.changed = map[partitionOf]int64{}
			}
			f.changed[run.of] = run.next
		}
		n++
	}
	passed = slices.Clone(f.issued[:n])
	f.issued = slices.Delete(f.issued, 0, n)
	return passed
}

// take hands out what changed since the last take. What cannot be saved is given back.
func (f *frontier) take() []store.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	offsets := make([]store.Offset, 0, len(f.changed))
	for of, next := range f.changed {
		offsets = append(offsets, store.Offset{Topic: of.topic, Partition: of.number, Next: next})
	}
	clear(f.changed)
	return offsets
}

// giveBack keeps what was taken and not saved, unless there is something newer.
func (f *frontier) giveBack(offsets []store.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range offsets {
		of := partitionOf{o.Topic, o.Partition}
		if _, newer := f.changed[of]; !newer {
			if f.changed == nil {
				f.changed = map[partitionOf]int64{}
			}
			f.changed[of] = o.Next
		}
	}
}
