package relay

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/sink"
)

// clocked is a server whose clock is off.
type clocked struct {
	Tables
	off  atomic.Int64 // time.Duration
	slow atomic.Int64 // it takes so long to answer, after it has looked at its clock

	counts, counting atomic.Int64 // how often it has counted, and how long each time takes
}

func (c *clocked) Clock(context.Context) (time.Time, error) {
	at := time.Now().Add(time.Duration(c.off.Load()))
	time.Sleep(time.Duration(c.slow.Load()))
	return at, nil
}

func (c *clocked) CountDead(context.Context) (int64, error) {
	time.Sleep(time.Duration(c.counting.Load()))
	c.counts.Add(1)
	return 0, nil
}

func (*clocked) OldTransactions(context.Context, time.Duration) ([]store.Blocker, error) {
	return nil, nil
}

func (*clocked) Slot(context.Context) (store.SlotStatus, error) {
	return store.SlotStatus{}, context.DeadlineExceeded
}

// Catches: a server's clock that is off taken for events that are old, or for young ones, and so requests that wait
// for nothing or never. Seen to fail with the difference of the clocks left out, and with it taken the other way.
func TestAgeOfTheStreamIsByTheServersClock(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		server := &clocked{}
		server.off.Store(int64(off))
		r := &Relay{store: server}
		r.meter = r.newMeter("")
		s := &session{r: r, ledger: offsets.New(1)}
		s.counting = s.ledger
		if err := s.setClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		committed := time.Now().Add(off - 10*time.Minute)
		s.apply([]step{{kind: stepBegin, lsn: 10, time: committed.UnixMicro()}}, nil, nil)
		if age := r.meter.Stream.Age(); age < 9*time.Minute || age > 11*time.Minute {
			t.Errorf("a transaction of 10 minutes ago, the server's clock off by %v: got an age of %v", off, age)
		}
	}
}

// A clock is set while a session goes on, as when a machine wakes up: the server's, or this one's, which is the same.
// Break it catches: a stream that counts as old from then on, or as young, for as long as the session lives. Then
// nothing is pruned and no sweep goes on while events come. Seen to fail with the clocks compared when a session
// begins, and never again, and with a slow answer taken for what it is not.
func TestAgeOfTheStreamFollowsClocksThatAreSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		server := &clocked{}
		r.store = server
		tm := idleTerm(t, r)
		s := &session{r: r, term: tm, ledger: offsets.New(1), fail: func(error) {}}
		s.epochSeen.Store(1)
		if err := s.setClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		tm.session.Store(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tm.watch(ctx)
		for _, now := range []struct{ off, slow time.Duration }{{time.Minute, 0}, {-time.Hour, 0},
			{-time.Hour, 4 * time.Second}} {
			server.off.Store(int64(now.off))
			server.slow.Store(int64(now.slow))
			time.Sleep(3 * clockEvery)
			s.counting, s.inTx = offsets.New(1), false
			s.apply([]step{{kind: stepBegin, lsn: 10, time: time.Now().Add(now.off).UnixMicro()}}, nil, nil)
			if age := r.meter.Stream.Age().Abs(); age > time.Millisecond {
				t.Errorf("a transaction of now, the server's clock off by %v, slow by %v: got an age of %v", now.off, now.slow, age)
			}
		}
	})
}

// Dead letters and parked events are counted by reading each of them. Break it catches: millions of them are read again
// each ten seconds, however long that takes. Seen to fail with the ten seconds alone.
func TestCountOfMuchRestsTheServer(t *testing.T) {
	for took, want := range map[time.Duration]int64{time.Millisecond: 60, 3 * time.Second: 20, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := assemble(options{config: config.Default()})
			server := &clocked{}
			server.counting.Store(int64(took))
			r.store = server
			tm := idleTerm(t, r)
			tm.session.Store(&session{})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			tm.count(ctx)
			if got := server.counts.Load(); got < max(1, want-5) || got > want {
				t.Errorf("a count takes %v: %d were made in ten minutes, want %d", took, got, want)
			}
		})
	}
}

// idleTerm is a term of the relay whose goroutines the test plays.
func idleTerm(t *testing.T, r *Relay) *term {
	r.driver = idle{}
	tm := newTerm(r)
	t.Cleanup(func() { tm.engine.Abandon(context.Background()) })
	r.term.Store(tm)
	return tm
}

// idle is a driver that no one gives anything to do.
type idle struct{ sink.Driver }

func (idle) Changed() <-chan struct{} { return nil }

// Breaks it catches: marks on rows, and what else can wait, take their share while the WAL holds events that no one
// has read; they wait forever once it does not. Seen to fail with the stream's age not looked at, and with an age
// that stays.
func TestWhatCanWaitWaitsWhileTheStreamDeliversOldEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Relay{c: config.Default()}
		tm := &term{r: r, engine: sink.New(idle{}, sink.Config{})}
		defer tm.engine.Abandon(t.Context())
		r.meter = r.newMeter("")
		s := &session{r: r}
		for _, test := range []struct {
			age      time.Duration
			received int
			want     bool
		}{{time.Hour, 1, true}, {10 * time.Millisecond, 1, false}, {time.Hour, 0, false}} {
			s.now = time.Now()
			r.meter.Stream.Began(test.age.Microseconds())
			s.count(test.received, 1)
			if got := tm.behind(); got != test.want {
				t.Errorf("%d events that are %v old: got behind = %t", test.received, test.age, got)
			}
			time.Sleep(time.Second)
			if tm.behind() {
				t.Errorf("%d events that were %v old, a second ago: still behind", test.received, test.age)
			}
		}
	})
}
