package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// slow is a broker in memory that holds back publishers without an error.
type slow struct {
	*watchful
	holds atomic.Bool
}

func (s *slow) Slowed() string {
	if s.holds.Load() {
		return "the disk is nearly full"
	}
	return ""
}

// Breaks it catches: a broker that slows the relay down and is shown as "ok", or as an outage, for which the relay
// would not be ready.
func TestThrottledBrokerIsAStateAndNoError(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	driver := &slow{watchful: newWatchful()}
	r, stop := b.startWith(driver)
	b.waitRole(r, relay.RoleActive)
	want := func(broker, state string, gauge float64) {
		t.Helper()
		harness.Eventually(t, bedPatience, "broker "+broker, func(context.Context) string {
			st := r.Status()
			if !strings.HasPrefix(st.Broker, broker) || st.State != state || !st.Ready || len(st.Reasons) > 0 {
				return fmt.Sprintf("got broker %q, state %s, ready %t, reasons %q", st.Broker, st.State, st.Ready, st.Reasons)
			}
			if got := degradedFor(t, r, "throttled"); got != gauge {
				return fmt.Sprintf(`outbox_degraded{reason="throttled"}: got %v, want %v`, got, gauge)
			}
			return ""
		})
	}
	want("ok", "active", 0)
	driver.holds.Store(true)
	want("throttled: the disk is nearly full", "degraded", 1)
	driver.holds.Store(false)
	want("ok", "active", 0)
	mustStop(t, stop)
}

// degradedFor is outbox_degraded for the reason; -1: there is no such series.
func degradedFor(t *testing.T, r *relay.Relay, reason string) float64 {
	t.Helper()
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "outbox_degraded" && l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	return -1
}
