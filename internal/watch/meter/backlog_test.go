package meter

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// In a pause the WAL holds little but events; before it, what the relay wrote about each. Breaks it catches: a backlog
// that is a part of the truth, one that is told while no one knows it. Seen to fail with the WAL since the session's
// beginning divided by its events (333 of 1,000), with a larger event taken in at once, with the least never rising,
// and with the backlog told without a position or before the slot was looked at.
func TestBacklogCountsNoneOfTheRelaysOwnWAL(t *testing.T) {
	m, p, h, _ := scraped(t)
	h.Enter(health.Active)
	p.session = nil
	m.Database.Looked(store.SlotStatus{Exists: true, WALEnd: 1000}, time.Now())
	if n, known := m.Backlog(); known {
		t.Errorf("without a position: got %v, want nothing", n)
	}
	p.parked = 0
	p.session = &Session{Granted: 1000, Taken: 1000 + 900*1000, Events: 1000} // 900 bytes per event, 600 of them ours
	m.Database.slot.Store(nil)
	if n, known := m.Backlog(); known {
		t.Errorf("before the slot was looked at: got %v, want nothing", n)
	}
	for range 8 {
		m.Database.NoteWAL(300*100, 100)
	}
	m.Database.NoteWAL(3000*100, 100) // a checkpoint's pages
	m.Database.Looked(store.SlotStatus{Exists: true, WALEnd: p.session.Taken + 300*1000}, time.Now())
	n, known := m.Backlog()
	if n -= float64(p.InFlight()); !known || n < 900 || n > 1100 {
		t.Errorf("1,000 events of 300 bytes behind the position: got %v, known %v", n, known)
	}
	for range 100 {
		m.Database.NoteWAL(3000*100, 100)
	}
	if n, _ := m.Backlog(); n-float64(p.InFlight()) > 110 {
		t.Errorf("after events of 3,000 bytes: got %v, want about 100", n)
	}
}
