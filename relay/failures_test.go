package relay

import (
	"errors"
	"testing"
	"time"
)

// Breaks caught: a relay that has read its stream, and found nothing wrong or streamed for a while, and yet waits for
// as long as after many failures; or that looks again late whether a halt is repaired since it has been halted before,
// in another week. Seen to fail with errSounded taken for another failure, without the case of an active relay,
// without the one of a long session, and with halts that only another end resets.
func TestThePauseBeforeASessionIsShortWhereTheLastReadItsStream(t *testing.T) {
	failed := errors.New("connection refused")
	const reconnect, probe = 100 * time.Millisecond, 2 * time.Second
	for _, row := range []struct {
		name   string
		before failures
		lasted time.Duration
		role   Role
		err    error
		halt   bool
		want   time.Duration // without jitter
	}{
		{"never streamed", failures{3, 0}, time.Second, RoleStarting, failed, false, 8 * reconnect},
		{"streamed for a second", failures{8, 0}, time.Second, RoleActive, failed, false, 4 * reconnect},
		{"streamed, the first failure", failures{}, time.Second, RoleActive, failed, false, reconnect},
		{"read ahead", failures{8, 8}, time.Second, RoleHalted, errSounded, false, 4 * reconnect},
		{"streamed for long", failures{8, 0}, time.Minute, RoleActive, failed, false, reconnect},
		{"halted again", failures{2, 2}, time.Second, RoleHalted, failed, true, 4 * probe},
		{"streamed for a second, then a halt", failures{8, 8}, time.Second, RoleActive, failed, true, 4 * probe},
		{"streamed for long, then a halt", failures{8, 8}, time.Minute, RoleActive, failed, true, probe},
		{"not halted any more", failures{2, 2}, time.Second, RoleHalted, failed, false, 4 * reconnect},
	} {
		f := row.before
		if got := f.next(row.lasted, row.role, row.err, row.halt); got < row.want || got > row.want*5/4 {
			t.Errorf("%s: got a pause of %v, want about %v", row.name, got, row.want)
		}
		if !row.halt && f.halts != 0 {
			t.Errorf("%s: got %d halts in a row, want none", row.name, f.halts)
		}
	}
}
