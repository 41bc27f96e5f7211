package simulator

import (
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// A topic that has records is deleted, and created again some time later.

// errGone is the cluster's word that a topic does not exist.
type errGone struct{}

func (errGone) Error() string { return "the topic does not exist" }
func (errGone) Gone() bool    { return true }

// denied is the cluster's word that we may not write to a topic.
type denied struct{ error }

func (denied) Gone() bool { return true }

// planDeletion draws when a topic is deleted.
func (w *world) planDeletion() {
	if !w.profile.deletedTopic {
		return
	}
	d := w.dice(aboutDeletion)
	name := topicName(d.below(w.profile.topics))
	at, long := d.pause(0, w.profile.length), d.pause(50*time.Millisecond, 10*time.Second)
	w.duringTrouble(at, func() {
		t := w.cluster.topics[name]
		w.note("%s is deleted", name)
		w.fault(topicDeleted)
		w.cluster.heal(func() { t.missing = true })
		w.empty(t, name)
		w.after(long, func() {
			w.note("%s is created again", name)
			w.cluster.heal(func() { t.missing = false })
		})
	})
}

// giveUp notes the rows of a batch that was perhaps written to a topic that is gone. The driver counts them as possible
// duplicates, so a crash adds none: they are not among those that limits.max_unrecorded bounds.
func (w *world) giveUp(b *sink.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rec := range b.Records {
		r := w.server.rowOf(rec.Value)
		if r == nil || b.Outcome.Verdict != sink.Unknown {
			continue
		}
		r.givenUp = true
		if r.unrecorded != nil {
			r.unrecorded.unrecorded--
			r.unrecorded = nil
		}
	}
}

// empty takes everything out of the topic, if its broker keeps messages in topics: queues keep what an exchange sent
// them, and endpoints what they received. Offsets go on, so that those in the journal stay without a record.
func (w *world) empty(t *clusterTopic, name string) {
	if w.profile.kind.name == Confirm {
		return
	}
	for _, part := range t.partitions {
		for i := range part.log {
			r := part.log[i].row
			if r == nil || r.topic != name {
				continue
			}
			if r.unrecorded != nil { // no crash can duplicate it
				r.unrecorded.unrecorded--
				r.unrecorded = nil
			}
			r.vanished = true
			if !w.server.isJournaled(r) { // else once more is a duplicate
				r.appeared = 0
			}
			part.log[i] = message{at: time.Now()}
		}
		for _, a := range part.written {
			a.written = false // the new topic does not recognize the batch
		}
		part.written = nil
	}
}
