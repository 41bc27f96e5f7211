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

// arriving are tables that come all at once, each of one block. What is asked of one takes 5 ms.
type arriving struct {
	oneTable
	left *int
}

func (t arriving) Arrived() bool { return *t.left > 0 }
func (t arriving) NextTable()    {}
func (t arriving) Tables() int   { return 1000 }

func (t arriving) AuditState(context.Context) (store.AuditState, error) {
	<-time.After(5 * time.Millisecond)
	return store.AuditState{Ranged: true, Horizon: time.Now(), Blocks: 1}, nil
}

func (t arriving) UnrecordedIn(context.Context, int64, int64, int) ([][]byte, error) {
	<-time.After(5 * time.Millisecond)
	return nil, nil
}

func (t arriving) SaveSweep(context.Context, time.Time) error {
	if *t.left--; *t.left == 0 {
		close(t.swept)
	}
	return nil
}

// Break it catches: small tables that come under load and wait for the load as long as a look at a large one may: the
// older rows of the last of them came after hours. Seen to fail with waits of sweepStarve.
func TestManyTablesThatComeUnderLoadAreSweptWithinMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 50
		tables := arriving{oneTable{swept: make(chan struct{})}, &n}
		done := make(chan struct{})
		go func() {
			New(time.Hour, zerolog.Nop()).Run(ctx, tables, busy{stream: lasting{}})
			close(done)
		}()
		select {
		case <-tables.swept:
		case <-time.After(2 * time.Minute):
			t.Error("tables are still to be swept after two minutes")
		}
		cancel()
		<-done
	})
}
