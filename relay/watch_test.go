package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One event is stuck, or a catch-up takes long, and what flows beside it is journaled while nothing more is confirmed.
// Break it catches: how far the topics are journaled is not noted until then, so that a start after a crash must read
// back all that was published since, which it has no time for, and sends twice what the crash left unrecorded. Seen to
// fail with the offsets noted only when the position is.
func TestOffsetsAreNotedWhileNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	for _, role := range []relay.Role{relay.RoleActive, relay.RoleCatchUp} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			sick, well := sickKeys(3, 4)
			fault := b.broker.Cluster().Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "outbox.event.order", Partitions: []int32{3},
				Err: kerr.NotLeaderForPartition, Count: -1,
			})
			noted := func(want string) string {
				return "SELECT coalesce(sum(next_offset), 0) " + want + " FROM cdc_relay_offset WHERE partition >= 0"
			}
			if role == relay.RoleCatchUp {
				b.commitTo(sick, 1, 1)
				b.commitTo(well, 2, 41)
			}
			r, stop := b.start()
			b.waitRole(r, role)
			if role == relay.RoleActive {
				b.commitTo(sick, 1, 1)
				harness.Eventually(t, bedPatience, "the event is stuck", func(context.Context) string {
					if metric(t, r, "outbox_retry_total") == 0 {
						return "nothing was tried again"
					}
					return ""
				})
				b.commitTo(well, 2, 21)
				b.waitQuery("offsets are noted", noted("> 0"), "true")
				b.commitTo(well, 22, 41)
			}
			b.waitRecorded(40)
			b.waitQuery("all offsets are noted", noted("= 40"), "true")
			b.wantUnconfirmed(b.here())
			fault.Remove()
			b.waitRecorded(41)
			b.waitRole(r, relay.RoleActive)
			mustStop(t, stop)
			b.wantNumbers("outbox.event.order", 41)
		})
	}
}

// What is counted for the metrics waits for a lock. Break it catches: a relay that sends nothing in the meantime,
// because who counts is who proves the lease. Seen to fail with both in one goroutine.
func TestEventsFlowWhileWhatIsStoredIsCounted(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.Postgres.WALSenderTimeout = config.Duration(time.Second)
	b.c.Postgres.StatusInterval = config.Duration(100 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	conn := b.pg.Connect(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE outbox_events_dlq IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	const waits = " FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%count(*)%outbox_events_dlq%'"
	for n := 1; ; n++ { // the lease lasts for half a second
		b.waitQuery("the dead letters are being counted",
			"SELECT count(*) > 0"+waits+" AND clock_timestamp() - query_start > '0.7 s'", "true")
		counting := b.pg.Query(t, "SELECT max(query_start)"+waits)
		b.pg.Exec(t, many(n, 1, 1))
		b.waitRecorded(n)
		if now := b.pg.Query(t, "SELECT max(query_start)"+waits); now == counting && now != "" {
			break
		}
		if n == 3 {
			t.Fatal("each event waited until the dead letters were counted, or could not be")
		}
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	mustStop(t, stop)
}
