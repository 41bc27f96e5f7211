package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows name more topics that do not exist than a status lists. Break it catches: an answer of /readyz that grows with
// them. Written, but not run, to fail with each of them listed.
func TestStatusListsFewOfManyUnavailableTopics(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'absent' || i, 'k', 'made', jsonb_build_object('n', i) FROM generate_series(1, 35) i`)
	b.waitQuery("all are parked", "SELECT count(*) FROM cdc_relay_parked", "35")
	harness.Eventually(t, bedPatience, "the status tells of all topics", func(context.Context) string {
		found := r.Status().Degraded
		if len(found) != 21 || !strings.HasPrefix(found[20].Text, "15 more topics") {
			return fmt.Sprintf("got %d: %v", len(found), found)
		}
		return ""
	})
	mustStop(t, stop)
}
