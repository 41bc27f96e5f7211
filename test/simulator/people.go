package simulator

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// decideEvery is how often someone looks, when all trouble has ended, whether the relay waits for a decision.
const decideEvery = time.Second

// repairAfter is how long after the end of all trouble someone repairs what makes events bad.
const repairAfter = 20 * time.Second

// reconcilePatience is how long a person waits for a look at the whole table.
const reconcilePatience = 5 * time.Second

// planPeople draws what people ask for, at any time.
func (w *world) planPeople() {
	d := w.dice(aboutPeople)
	for range w.profile.requests {
		kind := one(d, store.RequestReplay, store.RequestReplay, store.RequestDiscard, store.RequestRetry, store.RequestRetry,
			store.RequestPause, store.RequestResume, store.RequestReconcile)
		key, choice := "k"+string(rune('0'+d.below(6))), d.below(4)
		w.duringTrouble(d.pause(0, w.profile.length), func() {
			f, of := store.Filter{All: true}, w.server.tables[w.steps%len(w.server.tables)]
			switch {
			case choice == 0:
				f = store.Filter{Key: &key}
			case choice == 1 && len(of.rows) > 0:
				f = store.Filter{IDs: []string{of.rows[w.steps%len(of.rows)].id}}
			}
			if kind == store.RequestReconcile && choice > 0 {
				w.reconcile()
			} else {
				w.askFor(of, kind, f)
			}
		})
		if kind == store.RequestPause {
			w.duringTrouble(d.pause(0, w.profile.length), func() { w.ask(store.RequestResume, store.Filter{}) })
		}
	}
}

// ask writes a request. Called with mu held.
func (w *world) ask(kind string, f store.Filter) {
	if w.server.up && w.server.db.states[w.server.slotName] != nil {
		w.askOf(w.server.slotName, kind, f)
	}
}

// farBudget is more WAL than a run has.
const farBudget = 1 << 29

// askOf writes a request to the relay of the slot.
func (w *world) askOf(slot, kind string, f store.Filter) {
	db := &w.server.db
	id := int64(len(db.requests) + 1)
	db.requests = append(db.requests, &request{Request: store.Request{ID: id, Kind: kind, Filter: f, Who: "somebody",
		RequestedAt: clock()}, slot: slot})
	if w.real != nil {
		w.real.asks(db.requests[id-1])
	}
	if w.profile.config.WAL.Budget > farBudget { // else the message alone would be more than it
		w.server.commitToken(store.TokenPrefix, store.AskedToken(slot))
	}
	w.note("somebody asks for %s, request %d", kind, id)
}

// reconcile asks every process to look at the whole table. Called with mu held.
func (w *world) reconcile() {
	for _, p := range w.processes {
		if p.dead || p.over {
			continue
		}
		w.note("somebody asks p%d to reconcile", p.number)
		go func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				select {
				case <-p.ended:
				case <-time.After(reconcilePatience):
				}
				cancel()
			}()
			if _, err := p.relay.Reconcile(ctx); err == nil {
				w.mu.Lock()
				w.counts.Reconciled++
				w.mu.Unlock()
			}
		}()
	}
}

// decide does what a person must when the relay waits for one. Called with mu held, when all trouble has ended.
func (w *world) decide() {
	db := &w.server.db
	slot := w.server.slotName
	if time.Since(w.decided) < decideEvery {
		return
	}
	w.decided = time.Now()
	if b := db.breakers[slot]; db.pauses[slot] != nil || b != nil && b.open {
		w.ask(store.RequestResume, store.Filter{})
	}
	if w.server.pending(lastTurn-1) || w.profile.config.Retry.OnDead != config.OnDeadHold || len(db.parked) == 0 {
		return
	}
	for at, d := range db.dead {
		if db.holds(at, d) {
			if w.decisions++; w.decisions == 1 || w.decisions == 3 {
				w.askFor(w.server.tableOf(at.source), store.RequestReplay, store.Filter{All: true})
			} else {
				w.askFor(w.server.tableOf(at.source), store.RequestDiscard, store.Filter{All: true})
			}
			return
		}
	}
}

// repair lets the broker take what it has refused. Called with mu held.
func (w *world) repair() {
	if !w.repaired {
		w.repaired = true
		w.note("nothing is refused any more")
		for r := range w.server.rows() {
			r.needed = min(r.needed, r.refusals)
		}
	}
}

// pending reports whether a request is not done whose turn is not after this one. Those of the last turn wait for room,
// or for what the stream delivers, and so for what a person decides.
func (s *server) pending(turn int) bool {
	for _, r := range s.db.requests {
		if r.slot == s.slotName && r.FinishedAt == nil && turnOf(r.Kind) <= turn {
			return true
		}
	}
	return false
}
