package meter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// Breaks it catches: what no one has read has no age, one that is too high, or one that stays when it was read; memory
// that grows with an outage; the positions of a server that was promoted, or restored, taken for those of the one
// before. Seen to fail with the age of the last look, with looks that stay, with every look kept, and with an end that
// goes back left out.
func TestWhatIsNotReadIsAsOldAsItWasSeenToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unread
		want := func(read outbox.LSN, want time.Duration) {
			t.Helper()
			if got := u.age(read); got != want {
				t.Errorf("read up to %d: got %v, want %v", read, got, want)
			}
		}
		want(0, 0)
		for end := range outbox.LSN(10) { // at second 0 up to 100, at second 1 up to 200, …
			u.note(time.Now(), 100*(end+1))
			u.note(time.Now(), 100*(end+1))
			time.Sleep(time.Second)
		}
		want(0, 10*time.Second)
		want(99, 10*time.Second)
		want(100, 9*time.Second)
		want(850, 2*time.Second)
		want(1000, 0)
		u.note(time.Now(), 1100)
		u.note(time.Now(), 50) // another server
		time.Sleep(time.Second)
		want(49, time.Second)
		want(50, 0)

		u.note(time.Now(), 1000)
		for end := range outbox.LSN(100 * mostLooks) {
			time.Sleep(time.Second)
			u.note(time.Now(), 2000+end)
		}
		if len(u.looks) > mostLooks {
			t.Errorf("after a long outage: %d looks are remembered, want at most %d", len(u.looks), mostLooks)
		}
		want(999, 100*mostLooks*time.Second)
		if got := u.age(2000 + 50*mostLooks); got > 50*mostLooks*time.Second || got < 40*mostLooks*time.Second {
			t.Errorf("half of it was read: got %v, want about %v", got, 50*mostLooks*time.Second)
		}
	})
}

// Breaks it catches: parked events are left out of what is pending; their age stays when none is left. Seen to fail
// with either.
func TestParkedEventsArePending(t *testing.T) {
	m, p, _, _ := scraped(t)
	p.parked = 3
	m.Database.OldestParked(time.Now().Add(-time.Hour))
	if age, known := m.pending(); m.backlog() != 3 || !known || age < time.Hour || age > time.Hour+time.Minute {
		t.Errorf("three parked for an hour: got a backlog of %d, %v old, known: %v", m.backlog(), age, known)
	}
	if lag := m.lag(); lag != 0 {
		t.Errorf("three parked: got a lag of %v, want none, they are recorded", lag)
	}
	p.parked = 0
	if age, _ := m.pending(); m.backlog() != 0 || age != 0 {
		t.Errorf("none parked: got a backlog of %d, %v old", m.backlog(), age)
	}
}

// A catch-up publishes rows from before the slot's position. Breaks it catches: an age that begins with the slot, a
// backlog without the rows, and either told before the rows are listed; an age that stays when they are published.
func TestRowsOfACatchUpArePending(t *testing.T) {
	m, p, h, _ := scraped(t)
	h.Enter(health.CatchUp)
	p.parked, p.session = 0, &Session{Granted: 1000, Taken: 1000}
	m.Database.Looked(store.SlotStatus{Exists: true, WALEnd: 1000}, time.Now())
	m.Database.TableFirst(true)
	want := func(when string, backlog, age float64) {
		t.Helper()
		n, counted := m.Backlog()
		a, known := m.PendingAge()
		if n -= float64(p.InFlight()); counted != (backlog >= 0) || counted && n != backlog {
			t.Errorf("%s: got a backlog of %v, known: %v, want %v", when, n, counted, backlog)
		}
		if known != (age >= 0) || known && (a < age || a > age+60) {
			t.Errorf("%s: got an age of %v s, known: %v, want %v", when, a, known, age)
		}
	}
	const unknown = -1
	want("not listed", unknown, unknown)
	m.Database.RowsLeft(7, time.Now().Add(-time.Hour))
	want("listed", 7, 3600)
	m.Database.TableFirst(true) // another session goes on with the list
	want("listed by an earlier session", 7, 3600)
	m.Database.RowsLeft(-1, time.Time{})
	want("rows without a time", unknown, unknown)
	m.Database.TableFirst(false)
	want("done", 0, 0)
}
