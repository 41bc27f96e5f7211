package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// guard finds the event that ends its process. After an unclean end what may have been in flight is noted before it is
// begun. If the process dies again, what was noted is begun alone, with nothing beside it. What was begun alone when
// the process died once more is set aside: others that were in flight with it have had their effects by then.
type guard struct {
	s      *session
	ids    []ledger.ID // noted, to be taken off
	locked func()      // lets others run beside it again
	killer *task       // it is to be set aside
}

// guard notes what is begun, where that is due. verdicts that are not nil end the job.
func (s *session) guard(r *run, job lanes.Job, tasks []*task) (*guard, []lanes.Verdict) {
	g := &guard{s: s}
	if !s.isCareful(job) {
		g.share()
		return g, nil
	}
	ids := make([]ledger.ID, len(tasks))
	for i, t := range tasks {
		ids[i] = t.id
	}
	suspects, err := s.ledger.Suspects(r.ctx, ids)
	if err != nil {
		return g, s.setAside(job, s.trouble(job, outcome{err: r.explain(err)}))
	}
	suspicion, suspected := suspects[0]
	switch {
	case len(suspects) > 0 && len(tasks) > 1:
		return g, s.setAside(job, lanes.Verdict{})
	case suspected && suspicion.Alone > 0 && suspicion.Seen+suspicion.Alone >= 2:
		g.killer = tasks[0]
		if job.Kind == lanes.Retry {
			return g, nil
		}
		lane := job.Pieces[0].Lane
		return g, []lanes.Verdict{s.giveUp(r, lane, tasks[0], died(entry(tasks[0], lane.Name, r.record)))}
	case suspected:
		s.solitude.Lock()
		g.locked = s.solitude.Unlock
	default:
		g.share()
	}
	if err := s.ledger.Suspect(r.ctx, ids, suspected); err != nil {
		g.end(true)
		return g, s.setAside(job, s.trouble(job, outcome{err: r.explain(err)}))
	}
	g.ids = ids
	return g, nil
}

// died is an event that has ended its process.
func died(e ledger.Entry) ledger.Entry {
	e.Attempts, e.Class = e.Attempts+1, classProcess
	e.Error = errors.New("the process died each time this event was handled").Error()
	return e
}

func (g *guard) share() {
	g.s.solitude.RLock()
	g.locked = g.s.solitude.RUnlock
}

// acquit takes the events off in the transaction that has their effects.
func (g *guard) acquit(ctx context.Context, tx pgx.Tx) error {
	if len(g.ids) == 0 {
		return nil
	}
	return g.s.ledger.Acquit(ctx, tx, g.ids)
}

// end is called when the handlers have ended, whatever they said: the process is alive.
func (g *guard) end(committed bool) {
	if g.locked != nil {
		g.locked()
		g.locked = nil
	}
	if !committed && len(g.ids) > 0 {
		if err := g.s.ledger.Acquit(g.s.hard, nil, g.ids); err != nil {
			g.s.c.config.Log.Debug("inbox: events stay suspects", "consumer", g.s.c.config.Name, "error", err)
		}
	}
}

// caution is for a partition whose last owner may have died.
type caution struct {
	left  int   // new events that are still noted: so many can have been in memory
	until int64 // the log's end when it was seen first; 0: not yet. What came later was in no process that died
}

// isCareful reports whether a job's events are noted before they are begun.
func (s *session) isCareful(job lanes.Job) bool {
	if job.Kind == lanes.Retry {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	careful := false
	for _, piece := range job.Pieces {
		c, on := s.careful[piece.Lane.Place()]
		careful = careful || on && (c.until == 0 || piece.Items[0].Record.Offset < c.until)
	}
	return careful
}

// spend counts new events that were handled.
func (s *session) spend(job lanes.Job, tasks []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.careful) == 0 {
		return
	}
	for _, t := range tasks {
		at := job.Pieces[t.piece].Lane.Place()
		if c := s.careful[at]; c != nil && t.status != statusDuplicate {
			if c.left--; c.left <= 0 {
				delete(s.careful, at)
			}
		}
	}
}

// sees notes the end of a partition's log.
func (s *session) sees(at lanes.Place, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.careful[at]; c != nil && c.until == 0 {
		c.until = end
	}
}
