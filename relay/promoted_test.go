package relay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// ofAnotherTimeline is a statement that makes the state what a server holds that was promoted since.
const ofAnotherTimeline = "UPDATE cdc_relay_state SET timeline = timeline + 1;"

// A relay stops in order, another one publishes a backlog, and the primary is lost before a standby has got anything of
// that one: it says that the stop was clean. Break it catches: its word believed, so that the backlog is published
// again whole, and nothing counts it. Seen to fail with the timeline looked at by none of those who ask whether the
// stop was clean (20 events twice), and by all but the count.
func TestACleanStopThatIsOlderThanAPromotionIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	mustStop(t, stop)
	b.waitFree()
	copied := "SELECT pg_copy_logical_replication_slot('%s', '%s')"
	standby := b.c.Postgres.Slot + "_standby"
	b.pg.Exec(t, fmt.Sprintf(copied, b.c.Postgres.Slot, standby))
	for _, table := range []string{"state", "epoch", "offset", "journal"} {
		b.pg.Exec(t, fmt.Sprintf("CREATE TABLE standby_%s AS TABLE cdc_relay_%[1]s", table))
	}

	b.pg.Exec(t, many(11, 20, 3))
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(30)
	mustStop(t, stop)
	b.dropSlot()
	b.pg.Exec(t, fmt.Sprintf(copied, standby, b.c.Postgres.Slot))
	for _, table := range []string{"state", "epoch", "offset"} {
		b.pg.Exec(t, fmt.Sprintf("DELETE FROM cdc_relay_%s; INSERT INTO cdc_relay_%[1]s TABLE standby_%[1]s", table))
	}
	b.pg.Exec(t, "DELETE FROM cdc_relay_journal WHERE event_id NOT IN (SELECT event_id FROM standby_journal);"+
		ofAnotherTimeline)

	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(31, 10, 3))
	b.waitRecorded(40)
	b.wantNumbers("outbox.event.order", 40)
	if n := metric(t, r, "outbox_unclean_starts_total"); n != 1 {
		t.Errorf("outbox_unclean_starts_total: got %v, want 1", n)
	}
	mustStop(t, stop)
}

// The standby that was promoted had not got the take-over of this relay, and another one has streamed from it since:
// its epoch has the same number. Break it catches: what is in memory taken for the truth, though the other relay may
// have published or parked it. Seen to fail with the epochs compared alone.
func TestARelayKnowsAnotherOnesEpochOfTheSameNumber(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, ofAnotherTimeline)
	b.pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+
		b.c.Postgres.Slot+"'")
	harness.Eventually(t, bedPatience, "the relay begins again, as after a crash", func(context.Context) string {
		if n := metric(t, r, "outbox_unclean_starts_total"); n != 1 || r.Status().Role != relay.RoleActive {
			return fmt.Sprintf("%s, %v unclean starts", r.Status().Role, n)
		}
		return ""
	})
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 5)
}
