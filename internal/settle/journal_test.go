package settle

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

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
		j := newJournal(limits)
		j.issued = time.Now().Add(time.Hour) // so that the gap does not pass while the test looks
		if j.wait() < journalGap {
			t.Errorf("%+v, nothing to journal: got a wait of %v, want the gap at least", row, j.wait())
		}
		j.pending.rows = make([]store.Published, row.early-1)
		if row.early > 1 && j.wait() < journalGap {
			t.Errorf("%+v, one too few: got a wait of %v, want the gap at least", row, j.wait())
		}
		j.pending.rows = make([]store.Published, row.early)
		if j.wait() != 0 {
			t.Errorf("%+v, a share: got a wait of %v, want none", row, j.wait())
		}
		j.frontier.Issue(&journalJob{}, &frontier.Ends{})
		if j.wait() < journalGap {
			t.Errorf("%+v, a share, while another is journaled: got a wait of %v, want the gap at least", row, j.wait())
		}
		j.pending.rows = make([]store.Published, 2*row.early)
		if j.wait() != 0 {
			t.Errorf("%+v, two shares, while another is journaled: got a wait of %v, want none", row, j.wait())
		}
	}
}
