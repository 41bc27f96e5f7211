package relay

import (
	"testing"
	"time"
)

// Breaks it catches: a few standbys that take over later than a single one does; many that together ask a server as
// often as each of them would alone, or wait for longer than the bounds.
func TestManyStandbysShareTheirLooks(t *testing.T) {
	for _, row := range []struct {
		n          int64
		poll, look time.Duration
	}{
		{1, standbyPoll, standbyLook}, {standbyShare, standbyPoll, standbyLook}, {8, 2 * standbyPoll, 2 * standbyLook},
		{40, 10 * standbyPoll, 10 * standbyLook}, {200, 50 * standbyPoll, slowestLook}, {9999, slowestPoll, slowestLook},
	} {
		if poll, look := sharedLooks(row.n); poll != row.poll || look != row.look {
			t.Errorf("%d standbys: got pauses of %v and %v, want %v and %v", row.n, poll, look, row.poll, row.look)
		}
	}
}
