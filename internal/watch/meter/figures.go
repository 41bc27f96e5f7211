package meter

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// unknownEventBytes is the WAL that an event is taken to need in the estimate of the backlog before any was seen.
const unknownEventBytes = 256

// Leads reports whether this process is the one that relays, as far as it knows.
func (m *Meter) Leads() bool {
	on, _ := m.health.Leads()
	return on
}

// MayTell reports whether what is known of the slot is this process's to tell: while it leads, and in a halt, in which
// it may not have got as far as that.
func (m *Meter) MayTell() bool { return m.Leads() || m.health.Role() == health.Halted }

// Received is the highest position received from the stream; 0: there is no session.
func (m *Meter) Received() outbox.LSN {
	s, _ := m.source.Session()
	return s.Received
}

// Confirmed is the session's position, or between two sessions and during a halt what the server says of the slot.
func (m *Meter) Confirmed() outbox.LSN {
	if s, some := m.source.Session(); some {
		return s.Confirmed
	}
	if slot, _, fresh := m.Database.Slot(); fresh && m.health.Role() != health.Standby {
		return slot.Confirmed
	}
	return 0
}

// taken is up to where the dispatcher has taken what the stream delivers, which is less than what was received in a
// pause; and between two sessions, or during a halt, what is confirmed. 0: not known.
func (m *Meter) taken() outbox.LSN {
	if s, some := m.source.Session(); some {
		return max(s.Taken, s.Granted)
	}
	return m.Confirmed()
}

// lag is how long ago the oldest transaction was committed that is not confirmed. Of what was not taken from the stream
// it is not known which transactions it holds, and when they committed: it counts as old as it was seen to be.
func (m *Meter) lag() (age time.Duration) {
	if s, some := m.source.Session(); some && !s.Oldest.IsZero() {
		age = max(time.Since(s.Oldest), 0)
	}
	if taken := m.taken(); taken != 0 {
		age = max(age, m.Database.unread.age(taken))
	}
	return age
}

// pending is lag with the events that are parked, spooled, or rows of a catch-up, whose age is known once they are
// listed; parked ones are as old as it was when they were parked.
func (m *Meter) pending() (age time.Duration, known bool) {
	age = m.lag()
	if older := m.Database.older.Load(); older != nil {
		if older.oldest.IsZero() {
			return 0, false
		}
		age = max(age, time.Since(older.oldest))
	}
	if s, _ := m.source.Session(); !s.SpooledSince.IsZero() {
		age = max(age, time.Since(s.SpooledSince))
	}
	if at := m.Database.oldestParked.Load(); at != 0 && m.source.Parked() > 0 {
		age = max(age, time.Since(time.UnixMicro(at)))
	}
	return age, m.taken() != 0 || age > 0
}

// backlog counts received, spooled and parked events that are not terminal and rows of a catch-up, plus an estimate for
// the WAL, by the WAL that events have needed so far: at most, as what else is written counts as events, too.
func (m *Meter) backlog() int64 {
	s, _ := m.source.Session()
	n := int64(m.source.InFlight()) + m.source.Parked() + s.Unread
	if older := m.Database.older.Load(); older != nil {
		n += max(older.left, 0)
	}
	slot, taken := m.Database.slot.Load(), m.taken()
	if slot == nil || taken == 0 || slot.WALEnd <= taken {
		return n
	}
	each := m.Database.eventBytes.Load()
	if each == 0 {
		each = unknownEventBytes
	}
	return n + int64(slot.WALEnd-taken)/each
}

// What follows is not known at all times; false: it is not known now.

// OpenDead is how many dead letters no one has replayed or discarded.
func (m *Meter) OpenDead() (float64, bool) { return m.reading(&m.Database.OpenDead) }

// MirrorLag is how many events are journaled and not yet marked or deleted.
func (m *Meter) MirrorLag() (float64, bool) { return m.reading(&m.Database.mirrorLag) }

// MirrorAge is for how long the oldest of these waits, in seconds.
func (m *Meter) MirrorAge() (float64, bool) {
	micros, known := m.reading(&m.Database.mirrorAge)
	return micros / 1e6, known
}

// reading holds values read from the database while it answers.
func (m *Meter) reading(n *Reading) (float64, bool) {
	_, _, fresh := m.Database.Slot()
	return float64(n.value.Load()), n.known.Load() && fresh && m.Leads()
}

// Spooled is how many events are spooled.
func (m *Meter) Spooled() (float64, bool) {
	s, some := m.source.Session()
	return float64(s.Spooled), some && m.MayTell()
}

// Parked is about how many events are parked.
func (m *Meter) Parked() (float64, bool) { return float64(m.source.Parked()), m.Leads() }

// HeldKeys is how many keys are held.
func (m *Meter) HeldKeys() (float64, bool) { return float64(m.source.Sink().HeldLanes), m.Leads() }

// LagBytes is the server's end of WAL, as read last, minus what is confirmed now.
func (m *Meter) LagBytes() (float64, bool) {
	slot, _, fresh := m.Database.Slot()
	confirmed := m.Confirmed()
	if !fresh || confirmed == 0 {
		return 0, false
	}
	end := max(slot.WALEnd, m.Received())
	return float64(max(int64(end)-int64(confirmed), 0)), m.MayTell()
}

// Lag is the age of the oldest transaction that is not confirmed, in seconds.
func (m *Meter) Lag() (float64, bool) { return m.lag().Seconds(), m.MayTell() && m.taken() != 0 }

// PendingAge is the age of the oldest event that is not terminal, in seconds. It is not known while Postgres is away,
// unless events are parked, nor before the rows of a catch-up are listed.
func (m *Meter) PendingAge() (float64, bool) {
	age, known := m.pending()
	return age.Seconds(), known && m.MayTell()
}

// Backlog is how many events are not terminal, about. It is not known while Postgres is away: what was received or
// parked would look like all. Nor is it in a catch-up whose rows an earlier session has listed.
func (m *Meter) Backlog() (float64, bool) {
	_, _, fresh := m.Database.Slot()
	older := m.Database.older.Load()
	return float64(m.backlog()), m.MayTell() && m.taken() != 0 && fresh && (older == nil || older.left >= 0)
}

// audited is how long ago the last round of this leadership began that found nothing missing; before the first, for how
// long it has streamed, halts included.
func (m *Meter) audited() (float64, bool) {
	_, since := m.health.Leads()
	if since.IsZero() {
		return 0, false
	}
	if clean := m.Database.clean.Load(); clean != nil && clean.After(since) {
		since = *clean
	}
	return time.Since(since).Seconds(), true
}
