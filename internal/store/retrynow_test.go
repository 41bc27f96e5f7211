package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: a retry that promises that events become due, does nothing, and says that it is done. Seen to fail with
// nothing said when nothing was made due, and with that said of a retry that made something due.
func TestRetryOfWhatNoTimeKeepsSaysWhatItWaitsFor(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	parkAll(t, s, []store.Parked{
		parkedAt(1, "k", store.WhenWell), parkedAt(2, "l", time.Hour), parkedAt(3, "l", store.NotDue),
	})
	for _, row := range []struct {
		f    store.Filter
		want string
	}{
		{store.Filter{IDs: []string{uuid(1)}}, "1 wait until their topic or partition recovers"},
		{store.Filter{IDs: []string{uuid(9)}}, "no parked event matches"},
		{store.Filter{All: true}, ""},
	} {
		r := ask(t, s, store.RequestRetry, row.f, "ann", "")
		must(t, "start", s.StartRequest(t.Context(), r))
		for n := int64(1); n > 0; {
			var err error
			n, err = s.RetryNow(t.Context(), r, 10)
			if row.want == "" {
				must(t, "retry", err)
			} else if !errors.Is(err, store.ErrCannot) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("retry %+v: got %d, %v; want it to say %q", row.f, n, err, row.want)
			}
		}
		must(t, "finish", s.FinishRequest(t.Context(), r.ID, ""))
	}
	if n := pg.Query(t, `SELECT count(*) FROM cdc_relay_parked WHERE next_retry_at <= now()`); n != "1" {
		t.Errorf("due: got %s, want 1", n)
	}
}
