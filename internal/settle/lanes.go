package settle

import (
	"bytes"
	"errors"
	"slices"

	"github.com/cdc-relay/cdc-relay/sink"
)

// retryMost is how many held events are handed in again at once.
const retryMost = 1000

// lanes are the lanes that the sink holds: one of their events was rejected, and what came behind it waits here, in
// memory, until its dead letter is committed. Then the followers go out in order, and the lane is released.
type lanes struct {
	engine *sink.Engine
	byName map[laneName]*lane
	moved  []*lane // something happened to them since the last advance
}

type lane struct {
	name       laneName
	lane       sink.Lane
	generation uint64
	queue      []*Delivery // held, in order of position
	unwritten  int         // rejected, dead letter not yet committed
	out        int         // handed in again, no result yet
}

// laneName is a lane as the key of a map.
type laneName struct {
	source     int32
	topic, key string
	keyless    bool // each of its events is a lane of its own; those that are parked move together
}

func nameOf(l sink.Lane) laneName { return laneName{l.Source, l.Topic, string(l.Key), l.Key == nil} }

func (l *lanes) of(d *Delivery) *lane {
	name := nameOf(d.Record.Lane())
	found := l.byName[name]
	if found == nil {
		found = &lane{name: name, lane: d.Record.Lane()}
		found.lane.Key = bytes.Clone(found.lane.Key) // it outlives this event
		l.byName[name] = found
	}
	l.moved = append(l.moved, found)
	return found
}

// has reports whether the lane waits here for a dead letter or for its followers.
func (l *lanes) has(d *Delivery) bool {
	if len(l.byName) == 0 {
		return false
	}
	_, known := l.byName[nameOf(d.Record.Lane())]
	return known
}

// abandon gives the lane's followers up, in order: the event in front of them was rejected for a reason that may
// pass, and all of them are parked.
func (l *lanes) abandon(d *Delivery) []*Delivery {
	if !l.has(d) {
		return nil
	}
	la := l.of(d)
	l.result(d, la)
	if la.unwritten > 0 {
		panic("settle: an event was tried while a dead letter in front of it was not committed")
	}
	delete(l.byName, la.name)
	return la.queue
}

// result takes the Delivery out of its retry batch, if it was in one.
func (l *lanes) result(d *Delivery, la *lane) {
	if d.retried {
		d.retried = false
		la.out--
	}
}

func (l *lanes) published(d *Delivery) {
	if d.retried {
		l.result(d, l.of(d))
	}
}

func (l *lanes) rejected(d *Delivery) {
	if d.Record.Key == nil {
		return // a lane of its own: no one waits for it
	}
	la := l.of(d)
	l.result(d, la)
	la.generation = d.Record.Generation
	la.unwritten++
}

func (l *lanes) held(d *Delivery) {
	la := l.of(d)
	l.result(d, la)
	la.generation = d.Record.Generation
	// Usually the last. The rest of a retry comes back behind what was submitted since, and belongs before it.
	at := len(la.queue)
	for at > 0 && la.queue[at-1].Event.Position.Compare(d.Event.Position) > 0 {
		at--
	}
	la.queue = slices.Insert(la.queue, at, d)
}

// takenBack reports that a rejected event was handed in again.
func (l *lanes) takenBack(d *Delivery) {
	if d.Record.Key == nil {
		return
	}
	la := l.of(d)
	la.unwritten--
	la.out++
	d.retried = true
}

// deadWritten reports that the dead letter of a rejected event is committed.
func (l *lanes) deadWritten(d *Delivery) {
	if d.Record.Key != nil {
		l.of(d).unwritten--
	}
}

// deadHolds is deadWritten for a dead letter that holds its lane. The lane is parked from now on; its followers are
// given up, in order. Those that were handed in with it may still be on their way back as held.
func (l *lanes) deadHolds(d *Delivery) []*Delivery {
	la := l.of(d)
	if la.unwritten--; la.unwritten > 0 {
		panic("settle: two events of a lane were tried at a time")
	}
	delete(l.byName, la.name)
	return la.queue
}

// advance lets the lanes to which something happened take their next step.
func (l *lanes) advance() {
	for _, la := range l.moved {
		if l.byName[la.name] == la && la.unwritten == 0 && la.out == 0 {
			l.step(la)
		}
	}
	clear(l.moved)
	l.moved = l.moved[:0]
}

func (l *lanes) step(la *lane) {
	if len(la.queue) == 0 {
		// False: more of its records are on their way back as held; the lane moves again when they arrive.
		if l.engine.Release(la.lane, la.generation) {
			delete(l.byName, la.name)
		}
		return
	}
	n := min(len(la.queue), retryMost)
	records := make([]*sink.Record, n)
	for i, d := range la.queue[:n] {
		d.retried = true
		records[i] = &d.Record
	}
	err := l.engine.Retry(la.lane, la.generation, records)
	if err == nil {
		la.queue, la.out = slices.Delete(la.queue, 0, n), n
		return
	}
	for _, d := range la.queue[:n] {
		d.retried = false
	}
	// Stale: a newer rejection is on its way. Closed: the process ends, and the next start looks up what was
	// recorded.
	if !errors.Is(err, sink.ErrStaleGeneration) && !errors.Is(err, sink.ErrClosed) {
		panic("settle: retry of a held lane: " + err.Error())
	}
}
