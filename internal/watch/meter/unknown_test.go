package meter

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// Nothing was read of the database yet. Break it catches: a gauge that shows a 0, which is taken for the truth, where
// nothing is known; every gauge but those of the process's own memory and state is looked at, new ones too. Seen to
// fail with alarms shown before they were read.
func TestGaugesOfWhatIsNotKnownAreAbsent(t *testing.T) {
	m, p, _ := fresh()
	p.unread = true
	wantOnlyOwn(t, m, "before anything was read")
}

// The database answered, and does not any more: what it said last is no news. Break it catches: a gauge that goes on
// with what was read before, however long ago.
func TestGaugesOfADatabaseThatWentAwayAreAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p, h := fresh()
		h.Enter(health.Active)
		m.Database.Looked(store.SlotStatus{Exists: true, Confirmed: 1, WALEnd: 9}, time.Now())
		m.Database.OpenDead.Set(3)
		m.Database.Mirrored(4, time.Second)
		p.session = &Session{Granted: 1, Received: 1, Confirmed: 1}
		for _, known := range []func() (float64, bool){m.OpenDead, m.MirrorLag, m.MirrorAge, m.LagBytes, m.Backlog} {
			if value, is := known(); !is {
				t.Errorf("got %v, not known, while the database answers", value)
			}
		}
		time.Sleep(2 * slotFresh)
		p.unread = true
		for _, known := range []func() (float64, bool){m.OpenDead, m.MirrorLag, m.MirrorAge, m.LagBytes, m.Backlog} {
			if value, is := known(); is {
				t.Errorf("got %v, known, though the database has been away for %v", value, 2*slotFresh)
			}
		}
		p.session = nil // the stream is away, too
		h.Enter(health.Starting)
		wantOnlyOwn(t, m, "with the database away", "outbox_audited_until_seconds", "outbox_parked_events",
			"outbox_parked_keys")
	})
}

// wantOnlyOwn looks for gauges of what only the database knows; but is not among them.
func wantOnlyOwn(t *testing.T, m *Meter, when string, but ...string) {
	t.Helper()
	own := append(but, "outbox_in_flight_events", "outbox_in_flight_bytes", "outbox_unrecorded_events",
		"cdc_relay_role", "cdc_relay_halted", "cdc_relay_build_info")
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		if f.GetType() != dto.MetricType_GAUGE || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") ||
			strings.HasPrefix(name, "mq_") || slices.Contains(own, name) {
			continue
		}
		t.Errorf("%s: got %v %s, want no series", name, f.GetMetric(), when)
	}
}
