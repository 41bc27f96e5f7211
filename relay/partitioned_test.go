package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A partitioned outbox, under a publication that sends the partitions' rows under the partitions' own names: those of
// a partition that is made later would be unknown. Breaks it catches: such a publication taken as it is; a repair that
// does not repair; rows of a new partition that do not arrive. Seen to fail with the option not looked at.
func TestPartitionedOutboxWantsItsPublicationByTheRoot(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.Drift.Interval = config.Duration(200 * time.Millisecond)
	b.pg.Exec(t, `DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE SEQUENCE numbers;
		CREATE TABLE outbox_events (seq bigint DEFAULT nextval('numbers'), id uuid DEFAULT gen_random_uuid(),
			aggregate_type text, aggregate_id text,
			event_type text, payload jsonb, headers jsonb, created_at timestamptz DEFAULT clock_timestamp(),
				published_at timestamptz)
			PARTITION BY LIST (aggregate_id);
		CREATE TABLE k0 PARTITION OF outbox_events FOR VALUES IN ('k0');
		CREATE TABLE k1 PARTITION OF outbox_events FOR VALUES IN ('k1')`)
	b.pg.Exec(t, "CREATE PUBLICATION "+b.c.Postgres.Publication+" FOR TABLE outbox_events WITH (publish = 'insert')")
	r, stop := b.start()
	b.waitHalt(r, relay.HaltPublication, "under their own names")
	b.pg.Exec(t, many(1, 10, 2))
	b.pg.Exec(t, strings.TrimPrefix(r.Status().Halt.Remedy, "run "))
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(10)
	b.pg.Exec(t, "CREATE TABLE k2 PARTITION OF outbox_events FOR VALUES IN ('k2')")
	b.pg.Exec(t, many(11, 30, 3))
	b.waitRecorded(40)
	b.wantNumbers("outbox.event.order", 40)
	b.pg.Exec(t, "ALTER PUBLICATION "+b.c.Postgres.Publication+" SET (publish_via_partition_root = false)")
	b.waitHalt(r, relay.HaltPublication, "under their own names")
	b.pg.Exec(t, many(41, 10, 3))
	b.pg.Exec(t, strings.TrimPrefix(r.Status().Halt.Remedy, "run "))
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(50)
	b.wantNumbers("outbox.event.order", 50)
	mustStop(t, stop)
}
