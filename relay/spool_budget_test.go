package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Break it catches: a budget that is passed by what is written while the server decodes again what it keeps.
func TestSpoolBeginsBeforeTheBudgetIsUsedUp(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ confirmed, restart, want uint64 }{
		{confirmed: 5000 * mib, restart: 5000 * mib, want: 1000 * mib},
		{confirmed: 5000 * mib, restart: 4400 * mib, want: 700 * mib},
		{confirmed: 5000 * mib, restart: 100 * mib, want: 500 * mib}, // a long transaction: half of it is used all the same
		{confirmed: 5000 * mib, restart: 5001 * mib, want: 1000 * mib},
	} {
		if got := spoolsAbove(1000*mib, outbox.LSN(c.confirmed), outbox.LSN(c.restart)); got != c.want {
			t.Errorf("confirmed at %d, restart_lsn at %d MiB: got %d MiB, want %d", c.confirmed/mib, c.restart/mib, got/mib,
				c.want/mib)
		}
	}
}
