package simulator

import (
	"bytes"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// J6, J7 and J12 of dead letters: what is one, how many there may be, and their copies.

// judgeCopy finds the row of a dead letter's copy, and compares them (J6).
func (w *world) judgeCopy(p *process, rec *sink.Record) *row {
	id, _ := rec.Headers.Get("id")
	r := w.server.rowOf(rec.Value)
	_, class := rec.Headers.Get("x-outbox-error-class")
	if r == nil || !class || string(id) != r.id || string(rec.Key) != r.key {
		w.violate("p%d sends a copy to %s that is not of a row: id %q, key %q, value %q", p.number, rec.Topic, string(id),
			string(rec.Key), string(rec.Value))
		return &row{}
	}
	return r
}

// judgeAttempts fails if attempts were spent that were not refusals of the event itself (J7).
func (w *world) judgeAttempts(t *tables, source int32, id []byte, attempts int, what string) {
	if r := w.server.rowIn(t.of(source), id); r != nil && attempts > r.refusals && !w.unjudged {
		w.violate("p%d: %s is %s with %d attempts, and was refused %d times", t.p.number, string(id), what, attempts,
			r.refusals)
	}
}

// judgeDead fails if a dead letter is not deserved (J7).
func (w *world) judgeDead(t *tables, dead *store.Dead) {
	if w.unjudged {
		return
	}
	r := w.server.rowIn(t.of(dead.Event.Source), dead.Event.ID)
	w.note("p%d buries %s: %s", t.p.number, string(dead.Event.ID), dead.Code)
	switch {
	case r == nil:
		w.violate("p%d buries %s, which no row is", t.p.number, string(dead.Event.ID))
		return
	case r.poison == wholesome:
		w.violate("p%d buries %s, which nobody refused: %s %s", t.p.number, r.name(), dead.Code, dead.Text)
	case r.poison == transient && r.refusals < w.profile.config.Retry.MaxAttempts:
		w.violate("p%d buries %s after %d refusals of %d", t.p.number, r.name(), r.refusals,
			w.profile.config.Retry.MaxAttempts)
	case r.poison != unmappable && r.refusals == 0:
		w.violate("p%d buries %s, which nobody refused", t.p.number, r.name())
	}
	if w.profile.config.DLQ.Topic != "" && !r.copied {
		w.violate("p%d buries %s, and no copy of it is in %s", t.p.number, r.name(), w.profile.config.DLQ.Topic)
	}
	w.judgeFlood(t)
	if !bytes.Equal(dead.Event.Payload, []byte(r.payload)) {
		w.violate("p%d buries %s with the payload %q", t.p.number, r.name(), string(dead.Event.Payload))
	}
}

// judgeFlood fails if more events are dead than the breaker lets die, in a run in which it counts them all and was
// never closed again (J12). Those that a person has dealt with count no more: a restart forgets them.
func (w *world) judgeFlood(t *tables) {
	limits := w.profile.config.DLQ.Breaker
	if time.Duration(limits.Window) < time.Hour || w.profile.requests > 0 {
		return
	}
	if b := w.server.db.breakers[t.slot]; b != nil && !b.resumed.IsZero() {
		return
	}
	n := 0
	for at, d := range w.server.db.dead {
		if t.covers(at.source) && !d.replayed && !d.discarded {
			n++
		}
	}
	if n > limits.Count {
		w.violate("p%d lets %d events die, and the breaker lets %d", t.p.number, n, limits.Count)
	}
}
