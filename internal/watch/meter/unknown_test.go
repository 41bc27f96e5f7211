package meter

import (
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// Nothing was read of the database yet. Break it catches: a gauge that shows a 0, which is taken for the truth, where
// nothing is known; every gauge but those of the process's own memory and state is looked at, new ones too. Seen to
// fail with alarms shown before they were read.
func TestGaugesOfWhatIsNotKnownAreAbsent(t *testing.T) {
	m, p, _ := fresh()
	p.unread = true
	own := []string{"outbox_in_flight_events", "outbox_in_flight_bytes", "outbox_unrecorded_events", "outbox_degraded",
		"cdc_relay_role", "cdc_relay_halted", "cdc_relay_build_info"}
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
		t.Errorf("%s: got %v before anything was read, want no series", name, f.GetMetric())
	}
}
