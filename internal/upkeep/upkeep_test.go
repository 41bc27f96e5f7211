package upkeep

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
)

// rows count what is asked of them; each step finds some, and the last of left steps that there are no more.
type rows struct {
	Tables
	left  atomic.Int64
	steps atomic.Int64
	sick  atomic.Bool
}

func (r *rows) step() (int, bool, error) {
	r.steps.Add(1)
	if r.sick.Load() {
		return 0, true, errors.New("no such column")
	}
	return 1, r.left.Add(-1) > 0, nil
}

func (r *rows) MirrorStep(context.Context, int) (int, bool, error)           { return r.step() }
func (r *rows) Prune(context.Context, time.Duration, int) (int, bool, error) { return r.step() }
func (r *rows) PruneRequests(context.Context, time.Duration, int) (int, bool, error) {
	return 0, false, nil
}

// host is a relay described by its fields.
type host struct {
	slotless, behind atomic.Bool
	progress         chan struct{}
	told, marked     atomic.Int64 // errors; rows
}

func (h *host) HoldsSlot() bool           { return !h.slotless.Load() }
func (h *host) Active() bool              { return true }
func (h *host) Behind() bool              { return h.behind.Load() }
func (h *host) Progress() <-chan struct{} { return h.progress }
func (h *host) Marked(rows int)           { h.marked.Add(int64(rows)) }
func (h *host) CannotMark(error) bool     { return false }

func (h *host) journaled() {
	select {
	case h.progress <- struct{}{}:
	default:
	}
}

func (h *host) Owner() func(error) {
	return func(err error) {
		if err != nil {
			h.told.Add(1)
		}
	}
}

// Breaks it catches: a mirror that costs events their turn, one that they put off without end, one that asks an idle
// database, or that stops permanently at an error or without the slot. Seen to fail without the look whether events
// wait, without the bound of the wait, with a look at each rest, and with an error that ends the loop.
func TestMirrorYieldsToEventsAndRestsWhenAllIsMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		tables, h := &rows{}, &host{progress: make(chan struct{}, 1)}
		want := func(steps int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := tables.steps.Swap(0); got != steps {
				t.Errorf("%s: got %d steps, want %d", when, got, steps)
			}
		}
		tables.left.Store(3)
		go New(config.Default(), tables, h, zerolog.Nop()).Mirror(ctx)
		time.Sleep(mirrorRest + mirrorPause)
		want(3, "three portions")
		if got := h.marked.Load(); got != 3 {
			t.Errorf("rows marked: the host was told of %d, want 3", got)
		}
		time.Sleep(time.Hour)
		want(0, "nothing new in an hour")
		h.journaled()
		time.Sleep(time.Millisecond)
		want(1, "something was journaled")
		h.behind.Store(true)
		tables.left.Store(1000)
		h.journaled()
		time.Sleep(mirrorRest + mirrorStarve/2)
		want(0, "events wait")
		time.Sleep(mirrorStarve)
		want(1, "events have waited for long")
		h.behind.Store(false)
		tables.sick.Store(true)
		time.Sleep(mirrorStarve + 2*mirrorRetry)
		if got := h.told.Load(); got < 2 || got > 3 {
			t.Errorf("an error that stays: the owner was told %d times in %v, want 2 or 3", got, 2*mirrorRetry)
		}
		h.slotless.Store(true)
		time.Sleep(mirrorRetry)
		tables.steps.Store(0)
		time.Sleep(time.Minute)
		want(0, "another relay has the slot")
	})
}

// Breaks it catches: a mirror that flushes the server's WAL five times a second at a pace, or that leaves marks of rare
// events waiting.
func TestMirrorRestsForLongerAtAPace(t *testing.T) {
	k := New(config.Default(), nil, nil, zerolog.Nop())
	for marked, want := range map[int]time.Duration{
		0: mirrorRest, 1: mirrorRest + mirrorEach, 50: mirrorRest + 50*mirrorEach, 200: steadyRest, 1 << 20: steadyRest,
	} {
		if got := k.restAfter(marked); got != want {
			t.Errorf("%d rows marked: got a rest of %v, want %v", marked, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		tables, h := &rows{}, &host{progress: make(chan struct{}, 1)}
		go New(config.Default(), tables, h, zerolog.Nop()).Mirror(ctx)
		for range 1000 { // 250 rows, one in a step, between two rests
			if tables.left.Load() <= 0 {
				tables.left.Store(250)
			}
			h.journaled()
			time.Sleep(10 * time.Millisecond)
		}
		if got := tables.steps.Load() / 250; got < 8 || got > 12 {
			t.Errorf("rests with much to mark in 10 s: got %d, want about 10", got)
		}
	})
}

// Breaks it catches: pruning that goes on while events wait, and rows that are never pruned again afterwards. Seen to
// fail without the look whether events wait.
func TestPruningLetsEventsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		tables, h := &rows{}, &host{}
		tables.left.Store(1 << 20)
		h.behind.Store(true)
		go New(config.Default(), tables, h, zerolog.Nop()).Prune(ctx)
		time.Sleep(2 * cleanEvery)
		synctest.Wait()
		if got := tables.steps.Load(); got != 0 {
			t.Errorf("events wait: got %d steps, want none", got)
		}
		h.behind.Store(false)
		time.Sleep(2 * cleanEvery)
		if got, want := tables.steps.Load(), int64(cleanEvery/cleanPause); got < want {
			t.Errorf("no event waits: got %d steps, want at least %d", got, want)
		}
	})
}

// sickRow has rows numbered from 0: one cannot be written, another is locked; shown ones are gone.
type sickRow struct {
	Tables
	mu    sync.Mutex
	open  []int
	sick  int
	steps int
}

func (r *sickRow) ShowDead(_ context.Context, skip, limit int) (due, left int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	skip = min(skip, len(r.open))
	some := slices.Clone(r.open[skip:min(skip+limit, len(r.open))])
	if slices.Contains(some, r.sick) {
		return len(some), len(some), errors.New("value too long")
	}
	r.open = slices.DeleteFunc(r.open, func(n int) bool { return slices.Contains(some, n) })
	return len(some), 0, nil
}

// took is how many steps were taken since it was asked last.
func (r *sickRow) took() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.steps
	r.steps = 0
	return n
}

func (r *sickRow) left() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.open)
}

// Breaks it catches: one row whose values the table refuses, and all others wait for it; a look when nothing is
// configured; one without the slot, or again and again while a row is refused. Seen to fail with portions that stay as
// large as they are, with the refused row not passed over, without the longer rest, and without the look for the slot.
func TestAFailureThatCannotBeShownKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		tables, h := &sickRow{sick: 700}, &host{}
		for n := range 1000 {
			tables.open = append(tables.open, n)
		}
		off := New(config.Default(), tables, h, zerolog.Nop())
		off.Failures(ctx) // returns
		c := config.Default()
		c.Outbox.DeadSet = "x = 1"
		h.slotless.Store(true)
		go New(c, tables, h, zerolog.Nop()).Failures(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tables.took(); n != 0 {
			t.Errorf("off, and without the slot: got %d steps, want none", n)
		}
		h.slotless.Store(false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := tables.left(); len(got) != 1 || got[0] != tables.sick {
			t.Fatalf("after 30 s: %d rows are not shown, want the one that is refused", len(got))
		}
		tables.took()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := tables.took(); n > 100 {
			t.Errorf("with one row refused: got %d steps in 10 minutes, want at most 100", n)
		}
	})
}
