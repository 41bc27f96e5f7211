package relay

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/offsets"
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
