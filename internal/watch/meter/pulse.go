package meter

import (
	"fmt"
	"sync/atomic"
	"time"
)

// stuckAfter bounds how long a goroutine of the hot path may be busy with one step before the process counts as stuck.
// A step is a few thousand events, milliseconds of work.
const stuckAfter = 30 * time.Second

// Pulse tells whether a goroutine is busy or waits. Waiting is never a fault: for the stream, for room in the window,
// for Postgres; all of these end by themselves. Being busy for half a minute is: with a loop without an end, or on a
// lock that no one gives back. Only a restart cures that.
type Pulse struct {
	origin time.Time    // its monotonic clock counts
	busy   atomic.Int64 // since when, in nanoseconds since origin; 0: it waits
}

// Works reports that the goroutine begins a step.
func (p *Pulse) Works() { p.busy.Store(max(int64(time.Since(p.origin)), 1)) }

// Waits reports that the goroutine waits.
func (p *Pulse) Waits() { p.busy.Store(0) }

// BusyFor is for how long the step has gone on; 0: it waits.
func (p *Pulse) BusyFor() time.Duration {
	since := p.busy.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.origin) - time.Duration(since)
}

// Pulses are those of the goroutines of the hot path.
type Pulses struct {
	Dispatching, Settling Pulse
	Submitting            Pulse // of the dispatcher while it hands events to the sink
}

func (p *Pulses) begin(origin time.Time) {
	p.Dispatching.origin, p.Settling.origin, p.Submitting.origin = origin, origin, origin
}

// Live reports whether the dispatcher and the settler turn, and if not, which of them is stuck. Only a stuck process is
// worth a restart: outages and halts are not cured by one; the status reports them.
func (m *Meter) Live() (live bool, reasons []string) {
	reasons = []string{}
	for _, p := range []struct {
		name  string
		pulse *Pulse
	}{{"dispatcher", &m.Pulses.Dispatching}, {"settler", &m.Pulses.Settling}} {
		if busy := p.pulse.BusyFor(); busy > stuckAfter {
			reasons = append(reasons,
				fmt.Sprintf("the %s has been busy with one step for %v: it is stuck", p.name, busy.Round(time.Second)))
		}
	}
	// Handing over may wait for room in the window for as long as an outage lasts, but not when nothing is in it.
	if busy := m.Pulses.Submitting.BusyFor(); busy > stuckAfter && m.source.Sink().Events == 0 {
		reasons = append(reasons, fmt.Sprintf(
			"the dispatcher has waited for %v for room in a window that is empty: the sink is stuck", busy.Round(time.Second)))
	}
	return len(reasons) == 0, reasons
}
