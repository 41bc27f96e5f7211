package relay

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/internal/meter"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/retry"
	"github.com/cdc-relay/cdc-relay/store"
)

// This file says when, and under which name, a session follows another: pure functions of how the last one ended.

const (
	steadySession = 10 * time.Second // a session that lasted this long resets the backoff
	briefAttempts = 3                // the backoff of one that streamed for a shorter time grows no further than this
)

var (
	reconnectBackoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 15 * time.Second, Jitter: 0.2}
	haltProbe        = retry.Backoff{Initial: 2 * time.Second, Max: 30 * time.Second, Jitter: 0.2}
)

// failures counts, in a row, the sessions that failed, and those that ended in a halt.
type failures struct{ sessions, halts int }

// next counts one more session, which lasted so long, had come to the role, and ended by err, a halt or not. It says
// how long to wait before the next one.
func (f *failures) next(lasted time.Duration, role Role, err error, halt bool) time.Duration {
	most := math.MaxInt
	switch {
	case lasted > steadySession:
		most = 1
	case role == RoleActive, errors.Is(err, errSounded):
		// It read its stream: what ended it, or those before it, is new or over.
		most = briefAttempts
	}
	f.sessions, f.halts = min(f.sessions+1, most), min(f.halts+1, most)
	if !halt {
		f.halts = 0
		return reconnectBackoff.Delay(f.sessions, random())
	}
	return haltProbe.Delay(f.halts, random())
}

func random() float64 { return rand.Float64() }

// spread varies a pause by a quarter so that several processes do not poll in step.
func spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// restartReason is the label of a session's end; few values, none from data.
func restartReason(err error) string {
	if _, ok := errors.AsType[*replication.SilentError](err); ok {
		return meter.RestartSilent
	}
	if errors.Is(err, replication.ErrServerEnded) {
		return meter.RestartServerShutdown
	}
	for _, lost := range []error{errLeaseLost, errNotStreaming, store.ErrFenced, store.ErrLeaseLost} {
		if errors.Is(err, lost) {
			return meter.RestartLeaseLost
		}
	}
	return meter.RestartConnection
}
