package relay

import (
	"sync/atomic"
	"time"
)

// dismissed is called when another relay has had the slot: what was read of the database is not this process's to tell.
func (r *Relay) dismissed() {
	r.health.Dismiss()
	r.metrics.openDead.forget()
	r.metrics.mirrorLag.forget()
}

// leads reports whether this process is the one that relays, as far as it knows.
func (r *Relay) leads() bool {
	on, _ := r.health.Leads()
	return on
}

// mayTell says whether what is known of the slot is this process's to tell: while it leads, and in a halt, in which it may not have
// got as far as that.
func (r *Relay) mayTell() bool { return r.leads() || r.health.Role() == RoleHalted }

// reading is a number of the database, as it was read last while this process leads.
type reading struct {
	value atomic.Int64
	known atomic.Bool
}

func (n *reading) set(value int64) {
	n.value.Store(value)
	n.known.Store(true)
}

func (n *reading) forget() {
	n.known.Store(false)
	n.value.Store(0)
}

// What follows is what /metrics shows of what is not known at all times; false: it is not known now.

func (r *Relay) toldReading(n *reading) func() (float64, bool) {
	return func() (float64, bool) { return float64(n.value.Load()), n.known.Load() && r.leads() }
}

func (r *Relay) toldParked() (float64, bool) { return float64(r.Parked()), r.leads() }

func (r *Relay) toldHeld() (held float64, known bool) {
	return float64(r.sinkStatus().HeldLanes), r.leads()
}

func (r *Relay) toldLagBytes() (float64, bool) {
	return float64(r.lagBytes()), r.mayTell() && r.metrics.slot.Load() != nil && r.confirmedLSN() != 0
}

func (r *Relay) toldLagAge() (float64, bool) {
	return r.lagAge().Seconds(), r.mayTell() && r.takenLSN() != 0
}

// toldPendingAge is not known while Postgres is away, unless events are parked.
func (r *Relay) toldPendingAge() (float64, bool) {
	age := r.pendingAge().Seconds()
	return age, r.mayTell() && (r.takenLSN() != 0 || age > 0)
}

// toldBacklog is, while Postgres is away, what was received or parked.
func (r *Relay) toldBacklog() (float64, bool) {
	return float64(r.backlog()), r.leads() || r.mayTell() && r.takenLSN() != 0
}

// toldAudited is how long ago the last round of this leadership began that found nothing missing; before the first, for how long it has
// streamed, halts included.
func (r *Relay) toldAudited() (float64, bool) {
	_, since := r.health.Leads()
	if since.IsZero() {
		return 0, false
	}
	if clean := time.Unix(0, r.seen.clean.Load()); clean.After(since) {
		since = clean
	}
	return time.Since(since).Seconds(), true
}
