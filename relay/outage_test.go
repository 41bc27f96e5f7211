package relay

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Breaks it catches: an outage of hours with one line in the log, or one each second; a recovery that is not logged.
func TestLogRepeatsAnOutageEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o outage
		var got []string
		look := func(seconds int, away, well bool) {
			for range seconds {
				if message, lasts := o.next(away, well); message != "" {
					got = append(got, fmt.Sprintf("%.12s %v", message[len("broker "):], lasts))
				}
				time.Sleep(time.Second)
			}
		}
		look(10, false, true)
		look(5, false, false) // not for long enough yet
		look(150, true, false)
		look(3, false, false)
		look(100, false, true)
		look(1, true, false)
		want := []string{"unavailable; 5s", "still unavai 1m5s", "still unavai 2m5s", "recovered 2m38s", "unavailable; 5s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
