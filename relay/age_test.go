package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/sink"
)

// clocked is a server whose clock is off.
type clocked struct {
	Tables
	off time.Duration
}

func (c clocked) Clock(context.Context) (time.Time, error) { return time.Now().Add(c.off), nil }

// Catches: a server's clock that is off taken for events that are old, or for young ones, and so requests that wait for nothing
// or never. Seen to fail with the difference of the clocks left out, and with it taken the other way.
func TestAgeOfTheStreamIsByTheServersClock(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		r := &Relay{store: clocked{off: off}}
		r.metrics = newMetrics(r)
		s := &session{r: r, ledger: offsets.New(1), router: &router{}}
		if err := s.setClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		committed := time.Now().Add(off - 10*time.Minute)
		s.apply([]step{{kind: stepBegin, lsn: 10, time: committed.UnixMicro()}}, nil, nil, nil)
		if age := r.streamAge(); age < 9*time.Minute || age > 11*time.Minute {
			t.Errorf("a transaction of 10 minutes ago, the server's clock off by %v: got an age of %v", off, age)
		}
	}
}

// idle is a driver that nobody gives anything to do.
type idle struct{ sink.Driver }

func (idle) Changed() <-chan struct{} { return nil }

// Breaks it catches: marks on rows, and what else can wait, take their share while the WAL holds events that nobody has read; they
// wait for ever once it does not. Seen to fail with the stream's age not looked at, and with an age that stays.
func TestWhatCanWaitWaitsWhileTheStreamDeliversOldEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Relay{engine: sink.New(idle{}, sink.Config{}), c: config.Default()}
		defer r.engine.Abandon(t.Context())
		r.metrics = newMetrics(r)
		s := &session{r: r, router: &router{}}
		for _, test := range []struct {
			age      time.Duration
			received int
			want     bool
		}{{time.Hour, 1, true}, {10 * time.Millisecond, 1, false}, {time.Hour, 0, false}} {
			s.router.now = time.Now()
			r.age.Store(test.age.Microseconds())
			s.count(test.received, 1)
			if got := r.behind(); got != test.want {
				t.Errorf("%d events that are %v old: got behind = %t", test.received, test.age, got)
			}
			time.Sleep(time.Second)
			if r.behind() {
				t.Errorf("%d events that were %v old, a second ago: still behind", test.received, test.age)
			}
		}
	})
}
