package relay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A dead letter without a usable topic is replayed, and one is parked from an earlier release when the relay starts.
// Break it catches: its name in the requests to the brokers, which close the connection, so that nothing is published
// any more. Written, but not run, to fail with the sink asking its driver about any name.
func TestReplayOfAnIllegalTopicLeavesTheRelayWell(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("no/topic", 1, 3, 1)
	b.waitDead(3)
	replay := func() {
		b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
		b.waitQuery("dead again", "SELECT count(*) FROM outbox_events_dlq WHERE replayed_at IS NULL AND error_code = "+
			"'INVALID_TOPIC'", "3")
		b.waitNoneHeld(r)
		b.waitQuery("nothing parked", "SELECT count(*) FROM cdc_relay_parked", "0")
	}
	flows := func(from, to int) {
		b.commit("order", from, to, 5)
		b.waitRecorded(to - 10)
		harness.Eventually(t, bedPatience, "ready", func(context.Context) string {
			if st := r.Status(); !st.Ready || len(st.Degraded) > 0 {
				return fmt.Sprintf("ready %v, reasons %q, degraded %v", st.Ready, st.Reasons, st.Degraded)
			}
			return ""
		})
	}
	replay()
	flows(11, 100)
	mustStop(t, stop)
	b.pg.Exec(t, "UPDATE outbox_events_dlq SET topic = ''")
	b.ask(store.RequestReplay, store.Filter{All: true})
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	flows(101, 150)
	b.waitNoneHeld(r)
	mustStop(t, stop)
}
