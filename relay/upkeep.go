package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/internal/upkeep"
)

// upkeepHost is a term as package upkeep sees it.
type upkeepHost struct{ t *term }

func (t *term) newKeeper() *upkeep.Keeper {
	return upkeep.New(t.r.c, t.r.store, upkeepHost{t}, t.r.log)
}

func (h upkeepHost) HoldsSlot() bool           { return h.t.session.Load() != nil }
func (h upkeepHost) Active() bool              { return h.t.r.health.Role() == RoleActive }
func (h upkeepHost) Behind() bool              { return h.t.behind() }
func (h upkeepHost) Progress() <-chan struct{} { return h.t.settler.Progress() }
func (h upkeepHost) Owner() func(error)        { return h.t.owner().heed }
func (h upkeepHost) Marked()                   { h.t.r.health.Marked() }

func (h upkeepHost) CannotMark(err error) (news bool) { return h.t.r.health.CannotMark(err) }

// yieldAbove is how full the window may be before what is no event lets the events go first.
const yieldAbove = 0.25

// behind reports whether events wait: in the WAL, for the sink or for Postgres.
func (t *term) behind() bool {
	if t.r.meter.Stream.Old() {
		return true
	}
	s, limits := t.engine.Status(), t.r.c.Limits
	full := max(float64(s.Events)/float64(limits.InFlightEvents), float64(s.Bytes)/float64(limits.InFlightBytes))
	return full > yieldAbove
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
