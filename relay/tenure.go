package relay

import (
	"sync/atomic"
	"time"
)

// tenure is for how long this process is the one that relays, as far as it knows: from a catch-up or a stream of its own until another
// relay is seen to hold the slot. Neither a halt nor an absence of Postgres ends it: nobody knows better then.
type tenure struct {
	on       bool
	streamed time.Time // when the first stream of it began; zero before
}

// took begins the tenure, if it has not begun, in a role in which events flow.
func (h *health) took(role Role) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(role)
}

// take is took. The caller holds mu.
func (h *health) take(role Role) {
	switch role {
	case RoleCatchUp:
		h.tenure.on = true
	case RoleActive:
		h.tenure.on = true
		if h.tenure.streamed.IsZero() {
			h.tenure.streamed = time.Now()
		}
	}
}

// relays says whether this process is in its tenure, and since when it has streamed in it.
func (h *health) relays() (on bool, streamed time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenure.on, h.tenure.streamed
}

// dismissed ends the tenure: another relay has had the slot.
func (r *Relay) dismissed() {
	r.health.mu.Lock()
	r.health.tenure = tenure{}
	r.health.mu.Unlock()
	r.metrics.openDead.forget()
	r.metrics.mirrorLag.forget()
}

// inTenure says whether this process is the one that relays, as far as it knows.
func (r *Relay) inTenure() bool {
	on, _ := r.health.relays()
	return on
}

// mayTell says whether what is known of the slot is this process's to tell: in its tenure, and in a halt, in which it may not have
// got as far as that.
func (r *Relay) mayTell() bool { return r.inTenure() || r.health.role() == RoleHalted }

// reading is a number of the database, as it was read last in this tenure.
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
	return func() (float64, bool) { return float64(n.value.Load()), n.known.Load() && r.inTenure() }
}

func (r *Relay) toldParked() (float64, bool) { return float64(r.Parked()), r.inTenure() }

func (r *Relay) toldHeld() (held float64, known bool) {
	return float64(r.sinkStatus().HeldLanes), r.inTenure()
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
	return float64(r.backlog()), r.inTenure() || r.mayTell() && r.takenLSN() != 0
}

// toldAudited is how long ago the last round of this tenure began that found nothing missing; before the first, for how long it has
// streamed, halts included.
func (r *Relay) toldAudited() (float64, bool) {
	_, since := r.health.relays()
	if since.IsZero() {
		return 0, false
	}
	if clean := time.Unix(0, r.reconciler.clean.Load()); clean.After(since) {
		since = clean
	}
	return time.Since(since).Seconds(), true
}
