package reconcile

import (
	"context"
	"slices"
	"time"
)

// sweep is a look at the whole table, a piece at a time.
type sweep struct {
	began   time.Time
	next    int64 // block
	end     int64
	ids     [][]byte // unrecorded rows that nothing is proved of yet
	missed  int
	resting time.Time // until then
	yields  time.Time // until then, to events that wait
	took    time.Duration
	soon    bool      // it is the one that could not wait
	instead bool      // of a round
	horizon time.Time // once nothing is missed; zero: as it was
}

// Covers records the tables of the outbox. An attached one brings rows that are not in the WAL: the whole
// table is looked at, again until one look has been through.
func (c *Reconciler) Covers(oids []uint32) {
	if last := c.oids.Swap(&oids); last != nil && !slices.Equal(*last, oids) {
		c.soon.Store(true)
	}
}

// drop gives up the sweep that is under way.
func (c *Reconciler) drop() {
	if c.sweep != nil && c.sweep.soon {
		c.soon.Store(true)
	}
	c.sweep = nil
}

// beginSweep begins a look at the whole table as it is now.
func (c *Reconciler) beginSweep(ctx context.Context) error {
	before := time.Now()
	soon := c.soon.Swap(false) // before the look: a partition that is attached behind it needs another
	state, err := c.tables.AuditState(ctx)
	if err != nil {
		c.soon.CompareAndSwap(false, soon)
		return err
	}
	c.state.Ranged, c.state.Blocks = state.Ranged, state.Blocks
	c.sweep = &sweep{began: time.Now(), end: state.Blocks, soon: soon}
	c.sweep.rest(time.Since(before))
	return nil
}

// rest has the sweep rest after something that took so long.
func (w *sweep) rest(took time.Duration) {
	w.resting = time.Now().Add(sweepRest * took)
	w.yields = w.resting.Add(min(sweepStarve, sweepYields*took))
}

// sweepInstead has a sweep take the place of a round that one statement cannot read, because there are so many rows
// behind the horizon, as after an outage.
func (c *Reconciler) sweepInstead(ctx context.Context) error {
	running, err := c.tables.Running(ctx) // the statement took its time: what ran before it may be over
	if err != nil {
		return err
	}
	passed := c.horizon.advance(running)
	if c.sweep == nil {
		if err := c.beginSweep(ctx); err != nil {
			return err
		}
		if passed {
			c.sweep.horizon = c.horizon.next
		}
	}
	c.sweep.instead, c.due = true, time.Now().Add(sweepEvery) // its end makes the next round due
	c.log.Info().Time("horizon", c.state.Horizon).
		Msg("too many rows for one reconcile round; reading the whole table piece by piece instead")
	return nil
}

// sweepOn looks at the next piece of the table.
func (c *Reconciler) sweepOn(ctx context.Context, s Stream) error {
	w := c.sweep
	began := time.Now()
	if w.next < w.end {
		if _, err := c.look(ctx, s, w); err != nil {
			return err
		}
		took := time.Since(began)
		w.took += took
		if w.rest(took); w.next < w.end {
			return nil
		}
	}
	missed, err := c.prove(ctx, s, w.ids)
	if err != nil {
		return err
	}
	return c.swept(ctx, w, w.missed+missed)
}

// look reads one piece, and proves what is proved only together with others when there is enough of it.
func (c *Reconciler) look(ctx context.Context, s Stream, w *sweep) (seen int, err error) {
	room := unrecordedMost - len(w.ids)
	ids, err := c.tables.UnrecordedIn(ctx, w.next, w.next+sweepBlocks, room)
	if err != nil {
		return 0, err
	}
	w.ids = append(w.ids, ids...)
	if len(ids) < room {
		w.next += sweepBlocks
		return len(ids), nil
	}
	missed, err := c.prove(ctx, s, w.ids)
	w.ids, w.missed = nil, w.missed+missed
	return len(ids), err
}

// swept ends a sweep.
func (c *Reconciler) swept(ctx context.Context, w *sweep, missed int) error {
	c.sweep = nil
	c.due = time.Now().Add(max(c.pause(), roundRest*w.took))
	if !c.state.Ranged || w.instead {
		c.judge(missed, true, w.began)
	}
	if !c.state.Ranged {
		return c.turn(ctx)
	}
	if missed == 0 && !w.horizon.IsZero() {
		c.state.Horizon, c.horizon = w.horizon, horizon{}
		if err := c.saveHorizon(ctx); err != nil {
			return err
		}
	}
	c.state.SweptAt = w.began
	if err := c.tables.SaveSweep(ctx, w.began); err != nil {
		return err
	}
	return c.turn(ctx)
}
