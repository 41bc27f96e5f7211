package relay

import (
	"errors"
	"testing"
	"time"
)

// Break caught: a relay that has just read its stream and found nothing wrong, and yet waits for as long as after many failures. Seen to fail
// with errSounded taken for another failure, without the case of an active relay, and without the one of a long session.
func TestThePauseBeforeASessionIsShortWhereTheLastReadItsStream(t *testing.T) {
	failed := errors.New("connection refused")
	for _, row := range []struct {
		role   Role
		n      int
		lasted time.Duration
		err    error
		want   int
	}{
		{RoleStarting, 9, time.Second, failed, 9},
		{RoleActive, 9, time.Second, failed, briefAttempts},
		{RoleActive, 1, time.Second, failed, 1},
		{RoleStarting, 9, time.Second, errSounded, briefAttempts},
		{RoleStarting, 1, time.Second, errSounded, 1},
		{RoleActive, 9, time.Minute, failed, 1},
	} {
		r := new(Relay)
		r.health.enter(row.role)
		if got := r.failures(row.n, row.lasted, row.err); got != row.want {
			t.Errorf("%+v: got %d", row, got)
		}
	}
}
