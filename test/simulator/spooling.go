package simulator

import (
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// spools draws, for a part of the runs, how much WAL may be kept before events are spooled, and what seldom happens by
// itself while they are.
func (p *profile) spools(d *dice) {
	if !d.chance(0.3) {
		return
	}
	c := &p.config
	c.WAL.Budget = one[config.ByteSize](d, 1, 300, 3000)
	if d.chance(0.7) {
		p.spoolsSoon()
	}
	if d.chance(0.7) {
		p.clusterDown, p.length = true, p.length+d.pause(time.Second, 4*time.Second)
	}
	p.deletesSpooled = p.slotLost > 0
	large := d.chance(0.05)
	if large { // a transaction may have several rows of the spool
		p.filler, p.largest, p.transactions = 300<<10, 8, min(p.transactions, 6)
		p.older = min(p.older, p.transactions-1)
	}
	switch {
	case large:
		p.endsSpooling = d.between(2, 5)
	case d.chance(0.2):
		p.endsSpooling = d.between(1, 4)
		p.transactions, p.older, p.largest = d.between(20, 50), 0, 3
	case d.chance(0.2):
		p.parksBehindUnknown()
	}
	if p.endsSpooling > 0 {
		p.spoolsSoon()
		p.config.WAL.Budget, p.clusterDown, p.longOutage, p.length = 1, true, true, 10*time.Second
	}
}

// spoolsSoon shortens the relay's patience.
func (p *profile) spoolsSoon() {
	p.config.Postgres.WALSenderTimeout = config.Duration(time.Second)
	p.config.Postgres.StatusInterval = config.Duration(100 * time.Millisecond)
}

// parksBehindUnknown makes the run one in which a partition is in trouble, and nothing else, until a process is killed
// that has parked events behind one without an answer. The next one is paused when it starts: what is on its way again
// is spooled, and must not be overtaken.
func (p *profile) parksBehindUnknown() {
	p.spoolsSoon()
	p.config.WAL.Budget = 1
	p.parksBehind, p.people, p.requests, p.losses = true, true, 0, 0
	p.topics, p.partitions, p.keys = 1, 2, 6
	p.transactions, p.older, p.length = 60, 0, 12*time.Second
	p.partitionTrouble, p.clusterDown, p.topicTrouble, p.missingTopic = true, false, false, false
	p.lives, p.serverCrashes, p.slotLost, p.streamCuts, p.unread = 0, 0, 0, 0, 0
	p.standby, p.drift, p.longTransaction, p.secondTable = false, false, false, false
	p.dropped, p.unreadable, p.deletedTopic, p.deletesSpooled = false, false, false, false
}

// comesToSpool ends the process if it is the one that is to end there. Called with mu held.
func (w *world) comesToSpool(p *process) {
	if w.profile.endsSpooling == 0 || w.calm {
		return
	}
	if w.spooling++; w.spooling != w.profile.endsSpooling {
		return
	}
	w.fault(endsSpooling)
	if d := w.dice(aboutSpool, 1); d.chance(0.4) {
		p.kill()
	} else {
		p.freeze(d.pause(time.Second, 6*time.Second))
	}
}

// parksBehindOthers kills the process if it has parked the event while an earlier one of its lane is on its way, and
// pauses the next one. Called with mu held.
func (w *world) parksBehindOthers(t *tables, e *outbox.Event) {
	r := w.server.rowIn(t.of(e.Source), e.ID)
	if !w.profile.parksBehind || w.calm || r == nil || r.lane == nil {
		return
	}
	for _, before := range r.lane.rows[:r.place] {
		if before.streamed && !w.finished(before) && !w.server.isTerminal(before) {
			w.profile.parksBehind = false // once
			w.fault(parkedBehind)
			w.after(0, func() {
				t.p.kill()
				w.ask(store.RequestPause, store.Filter{})
			})
			return
		}
	}
}
