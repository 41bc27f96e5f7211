package settle

import (
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// aheadMost is how many lanes are read ahead at a time: each may keep a portion in memory. With more of them moving,
// their portions take turns anyway.
const aheadMost = 4

// run is a lane's drain portion after portion: while one is with the sink the next is read, from behind it, and it is
// handed in when the sink has published all of the former, whether or not that is recorded yet. Rows that are read
// from the front could be out already; those behind the last that was handed in cannot.
//
// Anything but "published" ends the run; then the lane is read from its front when all that was out is recorded. Only
// that look may find it empty and give it back.
type run struct {
	on      bool
	after   outbox.Position // of the last event that was handed in
	asking  bool            // the next portion was asked for; the lane's asking is true then, too
	next    *store.Portion  // it was read
	session Session         // in which it was
}

// goOn begins a run, or goes on with it, when a portion was handed in. Not for a head alone, which was not published
// yet, nor for a portion that was not taken completely.
func (p *parking) goOn(la *parkedLane, read *store.Portion, taken int) {
	if !la.draining || la.lane.Key == nil || !read.More || taken < len(read.Rows) {
		p.stopRun(la)
		return
	}
	if !la.run.on {
		if p.ahead >= aheadMost {
			return
		}
		p.ahead++
	}
	la.run.on, la.run.after = true, read.Rows[taken-1].Event.Position
}

// stopRun ends the lane's run. What was read ahead is forgotten, it is still in the table.
func (p *parking) stopRun(la *parkedLane) {
	if la.run.on {
		p.ahead--
		la.run = run{asking: la.run.asking}
	}
}

// advanceRun takes the lane's next step if it is in a run. False: it is not, or not any more.
func (p *parking) advanceRun(la *parkedLane) bool {
	switch r := &la.run; {
	case !r.on:
		return false
	case r.next != nil && la.out == 0:
		read, session := r.next, r.session
		_, inMemory := p.loop.lanes.byName[la.name]
		if r.next = nil; inMemory || session != p.loop.settler.mayRetry() { // see takePortion
			p.stopRun(la)
			return false
		}
		p.handIn(la, read, session)
		return la.run.on && p.advanceRun(la)
	case r.next == nil && !r.asking:
		after := r.after // the run may be another one when the retrier looks
		r.asking, la.asking = true, true
		p.loop.settler.retrier.ask(laneAsk{store.Ask{Lane: la.lane, After: &after}, false})
	}
	return true
}

// takeAhead takes in what was read behind the portion that is out.
func (p *parking) takeAhead(la *parkedLane, read *store.Portion, session Session) {
	la.run.asking = false
	if !la.run.on {
		return // it ended since
	}
	if len(read.Rows) == 0 || !read.Rows[0].Due {
		p.stopRun(la)
		return
	}
	la.run.next, la.run.session = read, session
}
