package requests

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// empty is a table without requests, and a relay that streams. All else must not be called.
type empty struct {
	Tables
	Host
	looks atomic.Int64
	deaf  atomic.Bool
}

func (e *empty) NextRequest(context.Context) (*store.Request, error) {
	e.looks.Add(1)
	return nil, nil
}

func (*empty) Asking() Session { return streaming{} }
func (*empty) Stopping() bool  { return false }
func (e *empty) Hears() bool   { return !e.deaf.Load() }
func (*empty) Recorded(string) {}

type streaming struct{ Session }

// Breaks it catches: a relay at rest that looks for requests all the time, one that does not although the stream tells
// of one, and one whose stream stands still and cannot tell.
func TestRequestsAreLookedForSeldomUntilTheStreamTellsOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		h := &empty{}
		e := New(Options{Logger: zerolog.Nop(), Tables: h, Host: h, Pausing: NewPausing()})
		go e.Run(ctx)
		looks := func(d time.Duration) int64 {
			t.Helper()
			synctest.Wait()
			before := h.looks.Load()
			time.Sleep(d)
			synctest.Wait()
			return h.looks.Load() - before
		}
		looks(pauseBetween)
		if got := looks(10 * restBetween); got != 10 {
			t.Errorf("at rest: got %d looks in %v, want 10", got, 10*restBetween)
		}
		before := h.looks.Load()
		e.Asked()
		synctest.Wait()
		if got := h.looks.Load() - before; got != 1 {
			t.Errorf("the stream has told of a request: got %d looks at once, want 1", got)
		}
		if got := looks(eagerFor); got < int64(eagerFor/pauseBetween)-1 {
			t.Errorf("after that, when its commit may not be seen yet: got %d looks in %v, want one each %v", got, eagerFor,
				pauseBetween)
		}
		looks(restBetween)
		h.deaf.Store(true)
		looks(restBetween) // the last that was long
		if got := looks(10 * pauseBetween); got != 10 {
			t.Errorf("the stream stands still: got %d looks in %v, want 10", got, 10*pauseBetween)
		}
	})
}
