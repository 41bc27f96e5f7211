package simulator

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// A topic loses records that the journal knows, someone compares the two, and asks for them once more.

const (
	lostMost        = 12              // records that are lost at once
	compareLeast    = 1 * time.Second // how long a comparison takes
	compareMost     = 4 * time.Second
	leaseMore       = 500 * time.Millisecond // what a request takes that was begun within the lease
	someRepublished = 2                      // how many rows one call gives, so that a request takes more than one
)

// planLosses draws when records are lost.
func (w *world) planLosses() {
	for i := range w.profile.losses {
		d := w.dice(aboutLosses, uint64(i))
		w.duringTrouble(d.pause(0, w.profile.length), func() { w.loseRecords(d) })
	}
}

// loseRecords takes records of events that are settled out of their topics, and asks for them later. Called with mu
// held.
func (w *world) loseRecords(d *dice) {
	// One that was replaced still has what its successor has written, until its lease ends. What it finds lost it would
	// write again, rightly, and the journal has the place of the copy that is gone.
	lease := time.Duration(w.profile.config.Postgres.WALSenderTimeout) / 2
	if rest := lease + leaseMore - time.Since(w.takenAt); rest > 0 {
		w.duringTrouble(rest, func() { w.loseRecords(d) })
		return
	}
	var ids []string
	for r := range w.server.rows() {
		if at := w.server.db.journal[w.server.keyOf(r)]; len(ids) < lostMost && d.chance(0.5) && w.mayLose(r, at) {
			w.cluster.topics[at.Topic].partitions[at.Partition].log[at.Offset] = message{at: time.Now()}
			r.appeared, r.lost = 0, true
			w.counts.Lost++
			ids = append(ids, r.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	w.note("topics lose the records of %v", ids)
	slices.Reverse(ids)
	w.comparing++
	w.after(d.pause(compareLeast, compareMost), func() { w.askForLost(ids) })
}

// askForLost asks for the events, as soon as the server can be asked. Called with mu held.
func (w *world) askForLost(ids []string) {
	if !w.server.up {
		w.after(time.Second, func() { w.askForLost(ids) })
		return
	}
	w.comparing--
	w.ask(store.RequestRepublish, store.Filter{IDs: ids})
}

// mayLose reports that nothing more is to become of the event: it is in its topic once, and recorded there.
func (w *world) mayLose(r *row, at store.Published) bool {
	if r.appeared != 1 || r.excused || r.unrecorded != nil || r.deleted || !r.visible || at.Topic == "" ||
		w.unreadable(r) {
		return false
	}
	return w.cluster.topics[at.Topic].partitions[at.Partition].log[at.Offset].row == r &&
		w.server.db.dead[w.server.keyOf(r)] == nil
}

// RepublishRows gives the next rows of the request: journaled before it was made, and still in the table.
func (t asked) RepublishRows(ctx context.Context, r *store.Request, limit int) (rows []store.CatchUpRow, err error) {
	err = t.reads(ctx, "republish rows", func(db *database) error {
		var there []*row
		for _, id := range r.Filter.IDs {
			if row := t.w.server.table.byID[id]; row != nil && row.visible && !row.deleted {
				there = append(there, row)
			}
		}
		sortBySeq(there)
		for i, row := range there {
			at := t.at(0, []byte(row.id))
			if _, journaled := db.journal[at]; !journaled || db.journaled[at].After(r.RequestedAt) || db.parked[at] != nil {
				continue
			}
			if len(rows) == min(limit, someRepublished) {
				break
			}
			rows = append(rows, store.CatchUpRow{Row: uint64(i + 1), Event: row.event()})
		}
		return nil
	})
	return rows, err
}

// Republish takes events out of the journal and parks them.
func (t asked) Republish(ctx context.Context, r *store.Request, events []store.Parked) (parked int64, err error) {
	err = t.fenced(ctx, "republish", func(db *database) error {
		for _, e := range events {
			at := t.at(e.Event.Source, e.Event.ID)
			if _, journaled := db.journal[at]; !journaled {
				continue
			}
			delete(db.journal, at)
			if db.parked[at] != nil {
				continue
			}
			db.arrivals++
			row := &parkedRow{
				event: cloneEvent(e.Event), topic: e.Topic, key: slices.Clone(e.Key), attempts: e.Attempts, class: e.Class,
				arrival: db.arrivals, late: e.Late, tried: clock(), replay: r.ID,
			}
			row.setDue(e.RetryIn)
			db.parked[at] = row
			parked++
			t.w.counts.Republished++
			t.w.note("p%d parks %s to be published once more", t.p.number, at.id)
		}
		db.request(r.ID).Done += parked
		t.durable()
		return nil
	})
	return parked, err
}

// judgeRepublished fails if a request is over and has left out what it could have published, or counts wrongly.
func (w *world) judgeRepublished(t *tables, r *request) {
	if w.unjudged {
		return
	}
	left := int64(0)
	for _, id := range r.Filter.IDs {
		row := w.server.table.byID[id]
		if _, journaled := w.server.db.journal[t.at(0, []byte(id))]; !journaled || row.journaled.After(r.RequestedAt) {
			continue
		}
		if left++; !row.deleted {
			w.violate("p%d has done request %d, and has not published %s once more", t.p.number, r.ID, id)
		}
		row.forgotten = true // the row is gone: no one can
	}
	if want := int64(len(r.Filter.IDs)) - left; r.Done != want {
		w.violate("p%d says that request %d has republished %d, and it did %d", t.p.number, r.ID, r.Done, want)
	}
}
