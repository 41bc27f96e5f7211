package settle

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func calm() bool { return false }

// Breaks it catches: a journal transaction for each result, or one beside another that is nearly done; and outcomes
// that wait for company while nothing more may be sent, or for a transaction that is slow. Seen to fail without the
// gap, without each of the two shares, with transactions beside each other as after each other, and with ones that
// are never beside each other.
func TestOutcomesWaitForCompanyUnlessTheyAreAShareOfTheWindow(t *testing.T) {
	for _, row := range []struct{ unrecorded, inFlight, early int }{
		{10_000, 50_000, 2500}, {1_000_000, 50_000, 4000}, {200, 50_000, 50}, {10_000, 100, 25}, {1, 1, 1},
	} {
		limits := config.Default().Limits
		limits.MaxUnrecorded, limits.InFlightEvents = row.unrecorded, row.inFlight
		j := newJournal(limits, steadyGap)
		j.issued = time.Now().Add(time.Hour) // so that the gap does not pass while the test looks
		if j.wait(calm) < journalGap {
			t.Errorf("%+v, nothing to journal: got a wait of %v, want the gap at least", row, j.wait(calm))
		}
		j.pending.rows = make([]store.Published, row.early-1)
		if row.early > 1 && j.wait(calm) < journalGap {
			t.Errorf("%+v, one too few: got a wait of %v, want the gap at least", row, j.wait(calm))
		}
		j.pending.rows = make([]store.Published, row.early)
		if j.wait(calm) != 0 {
			t.Errorf("%+v, a share: got a wait of %v, want none", row, j.wait(calm))
		}
		j.frontier.Issue(&journalJob{}, &frontier.Ends{})
		if j.wait(calm) < journalGap {
			t.Errorf("%+v, a share, while another is journaled: got a wait of %v, want the gap at least", row, j.wait(calm))
		}
		j.pending.rows = make([]store.Published, 2*row.early)
		if j.wait(calm) != 0 {
			t.Errorf("%+v, two shares, while another is journaled: got a wait of %v, want none", row, j.wait(calm))
		}
	}
}

// Breaks it catches: a gap that is long for events that are rare, or while something waits for the journal, or where
// topics cannot be read back; one that stays short at a pace.
func TestJournalGapFollowsThePace(t *testing.T) {
	for _, test := range []struct {
		name      string
		readsBack bool
		rows      int // of each job
		hurries   bool
		want      time.Duration // after many of these
	}{
		{"a pace", true, 20, false, steadyGap},
		{"a pace, and topics that cannot be read back", false, 20, false, journalGap},
		{"a pace, and something waits", true, 20, true, journalGap},
		{"rare events", true, 1, false, journalGap},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(config.Default().Limits, steadyGapOf(0, test.readsBack))
			hurries := func() bool { return test.hurries }
			var waited time.Duration
			for range 20 {
				j.pending.rows = make([]store.Published, test.rows)
				waited = j.wait(hurries)
				time.Sleep(waited)
				job := j.pending
				j.issue()
				j.frontier.Written(job)
			}
			if waited != test.want {
				t.Errorf("%s: got a wait of %v, want %v", test.name, waited, test.want)
			}
			time.Sleep(steadyGap)
			j.pending.rows = make([]store.Published, 1)
			if got := j.wait(hurries); got > 0 {
				t.Errorf("%s, then one event alone: got a wait of %v, want none", test.name, got)
			}
			if j.issue(); j.gap != journalGap {
				t.Errorf("%s, then one event alone: got a gap of %v for what follows, want %v", test.name, j.gap, journalGap)
			}
		})
	}
}

// journaling notes how many events each journal transaction has.
type journaling struct {
	Tables
	mu   sync.Mutex
	jobs []int
}

func (x *journaling) Settle(_ context.Context, published []store.Published, _ []store.Dead) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.jobs = append(x.jobs, len(published))
	return nil
}

func (x *journaling) take() []int {
	x.mu.Lock()
	defer x.mu.Unlock()
	jobs := x.jobs
	x.jobs = nil
	return jobs
}

// paceBench runs the settler's loop on a real engine over a broker that takes everything at once.
type paceBench struct {
	*testing.T
	engine  *sink.Engine
	settler *Settler
	tables  *journaling
	old     atomic.Bool // the stream delivers a backlog
}

// atAPace runs the test in a bubble, with the limits.
func atAPace(t *testing.T, limits config.Limits, test func(b *paceBench)) {
	synctest.Test(t, func(t *testing.T) {
		broker, tables, c := sinktest.NewBroker(), &journaling{}, config.Default()
		broker.SetTopic("t", 3)
		c.Limits = limits
		engine := sink.New(broker, sink.Config{MaxEvents: limits.InFlightEvents, MaxBytes: int(limits.InFlightBytes),
			MaxUnrecorded: limits.MaxUnrecorded})
		b := &paceBench{T: t, engine: engine, tables: tables}
		s := New(Options{Config: c, Tables: tables, Engine: engine, Host: nobody{}, Meter: deaf{}, Pulse: nobody{},
			ReadsBack: true, Old: b.old.Load})
		b.settler = s
		ctx, end := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { s.loop.run(ctx) })
		test(b)
		end()
		loop.Wait()
		if err := engine.Close(t.Context()); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
}

// send hands in an event of so many bytes.
func (b *paceBench) send(bytes int) {
	b.Helper()
	d := b.settler.inflight.Take(nil)[0]
	d.Record = sink.Record{Topic: "t", Value: []byte("v"), Cost: bytes, Owner: d}
	b.settler.inflight.Admit([]*Delivery{d})
	if _, err := b.engine.Submit(b.Context(), []*sink.Record{&d.Record}); err != nil {
		b.Fatalf("submit: %v", err)
	}
}

// Breaks it catches: a journal transaction for every few events at a pace; a stop, a catch-up or a halt that waits for
// the gap of that pace; an event that comes alone and waits for company.
func TestJournalTakesLargeStepsAtAPaceAndHurriesForWhoWaits(t *testing.T) {
	atAPace(t, config.Default().Limits, func(b *paceBench) {
		second := func() {
			for range 1000 {
				b.send(1000)
				time.Sleep(time.Millisecond)
			}
		}
		second()
		b.tables.take()
		second()
		if jobs := b.tables.take(); len(jobs) < 3 || len(jobs) > 5 {
			b.Errorf("journal transactions in a second of 1,000 events: got %v, want 4", jobs)
		}
		b.send(1000)
		time.Sleep(time.Millisecond)
		began := time.Now()
		<-b.settler.inflight.Drained()
		if took := time.Since(began); took > journalGap {
			b.Errorf("someone waits: all was journaled after %v, want at most %v", took, journalGap)
		}
		time.Sleep(time.Second)
		b.tables.take()
		b.send(1000)
		time.Sleep(time.Millisecond)
		if jobs := b.tables.take(); len(jobs) != 1 || b.settler.inflight.Len() != 0 {
			b.Errorf("an event alone: got %v journaled a millisecond later, want it", jobs)
		}
	})
}

// Breaks it catches: the last events of a backlog that wait for the gap of its pace.
func TestJournalIsNotLateAtTheEndOfABacklog(t *testing.T) {
	atAPace(t, config.Default().Limits, func(b *paceBench) {
		b.old.Store(true)
		for range 1000 {
			b.send(1000)
			time.Sleep(time.Millisecond)
		}
		b.old.Store(false)
		time.Sleep(journalGap)
		if left := b.settler.inflight.Len(); left > 0 {
			b.Errorf("%v after the last event of a backlog: %d events are not journaled", journalGap, left)
		}
	})
}

// Breaks it catches: events that wait for room in the window or for unrecorded credit, which the pending rows of the
// journal hold until their gap is over.
func TestJournalGapHoldsUpNoEvent(t *testing.T) {
	for name, test := range map[string]struct {
		set   func(*config.Limits)
		bytes int
	}{
		"few unrecorded":     {func(l *config.Limits) { l.MaxUnrecorded = 100 }, 1000},
		"few in flight":      {func(l *config.Limits) { l.InFlightEvents = 100 }, 1000},
		"large for a window": {func(l *config.Limits) { l.InFlightBytes = 32 << 20 }, 400_000},
	} {
		t.Run(name, func(t *testing.T) {
			limits := config.Default().Limits
			test.set(&limits)
			atAPace(t, limits, func(b *paceBench) {
				for n := range 2000 {
					began := time.Now()
					b.send(test.bytes)
					if waited := time.Since(began); waited > 0 {
						b.Fatalf("event %d waited %v for room", n, waited)
					}
					time.Sleep(time.Millisecond)
					if pending := b.engine.Status().Pending; pending > 0 {
						b.Fatalf("event %d: %d events wait for credit", n, pending)
					}
				}
			})
		})
	}
}
