package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// oneTable has nothing that is unrecorded, and was never looked through.
type oneTable struct {
	Tables
	swept chan struct{}
}

func (t oneTable) AuditState(context.Context) (store.AuditState, error) {
	return store.AuditState{Ranged: true, Horizon: time.Now(), Blocks: 3 * sweepBlocks}, nil
}

func (t oneTable) Running(context.Context) (store.Running, error) {
	return store.Running{Now: time.Now()}, nil
}

func (t oneTable) UnrecordedSince(context.Context, time.Time, int) ([][]byte, error) { return nil, nil }
func (t oneTable) UnrecordedIn(context.Context, int64, int64, int) ([][]byte, error) { return nil, nil }
func (t oneTable) SaveHorizon(context.Context, time.Time) error                      { return nil }

func (t oneTable) SaveSweep(context.Context, time.Time) error {
	close(t.swept)
	return nil
}

// busy is a relay for which events always wait.
type busy struct {
	Host
	stream Stream
}

func (b busy) Stream() Stream    { return b.stream }
func (b busy) Behind() bool      { return true }
func (b busy) Settled() uint64   { return 1 }
func (b busy) LateInFlight() int { return 0 }
func (b busy) Clean(time.Time)   {}

type lasting struct{ Stream }

func (lasting) Epoch() int64          { return 1 }
func (lasting) Over() <-chan struct{} { return nil }
func (lasting) Heed(error)            {}

// Break it catches: a sweep that waits for a load to end, and with it the older rows of a table that came.
// Seen to fail so.
func TestASweepEndsUnderALoadThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		table := oneTable{swept: make(chan struct{})}
		done := make(chan struct{})
		go func() {
			New(time.Hour, zerolog.Nop()).Run(ctx, table, busy{stream: lasting{}})
			close(done)
		}()
		select {
		case <-table.swept:
		case <-time.After(10 * sweepStarve):
			t.Error("the sweep has not ended")
		}
		cancel()
		<-done
	})
}
