package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: events that can be neither stored nor sent, or stored ones that cannot be deleted, which only the
// log tells of; WAL that is confirmed all the same; a trouble that is told of after it is over.
func TestStatusTellsWhyNothingIsSpooled(t *testing.T) {
	t.Parallel()
	role := harness.Unique(t, "role") // goes with the server
	b, back := spooling(t)
	b.asRole(role)
	b.pg.Exec(t, "REVOKE INSERT ON cdc_relay_spool FROM "+role)
	b.c.ShutdownGrace = config.Duration(time.Minute)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, filled(1, 2000, 3))
	position := b.here()
	b.waitReason(r, "cannot record outcomes (spool): ")
	if reasons := strings.Join(r.Status().Reasons, "\n"); !strings.Contains(reasons, "permission denied") {
		t.Errorf("reasons: got %q, want Postgres's permission denied", reasons)
	}
	b.wantUnconfirmed(position)
	b.pg.Exec(t, "REVOKE DELETE ON cdc_relay_spool FROM "+role+"; GRANT INSERT ON cdc_relay_spool TO "+role)
	b.waitSpooled(2000)
	b.waitConfirmedPast(position)
	harness.Eventually(t, bedPatience, "nothing is said of the grant that it has", func(context.Context) string {
		if reasons := strings.Join(r.Status().Reasons, "\n"); strings.Contains(reasons, "(spool)") {
			return reasons
		}
		return ""
	})
	back()
	b.waitReason(r, "cannot record outcomes (spool_delete): ")
	b.pg.Exec(t, "GRANT DELETE ON cdc_relay_spool TO "+role)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	b.waitReady(r)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 2000)
}

// Break it catches: a halt that does not say that nothing bounds the WAL any more.
func TestHaltTellsOfWALBeyondTheBudget(t *testing.T) {
	b := newBed(t) // not in parallel: a slot keeps the WAL of other tests, too
	b.c.WAL.Budget = 1 << 20
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, "DROP PUBLICATION "+b.c.Postgres.Publication)
	b.waitHalt(r, relay.HaltPublication)
	const beyond = "more than wal.budget"
	if reasons := strings.Join(r.Status().Reasons, "\n"); strings.Contains(reasons, beyond) {
		t.Errorf("halted, with little WAL: got the reasons %q", reasons)
	}
	b.pg.Exec(t, filled(1, 2000, 3))
	b.waitReason(r, beyond)
	b.pg.Exec(t, "CREATE PUBLICATION "+b.c.Postgres.Publication+" FOR TABLE outbox_events WITH (publish = 'insert')")
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(2000)
	b.waitReady(r)
}

// numbered are the numbers of the events in the topic, by key and in order: those that were published once more, and
// the others.
func (b *bed) numbered(topic string) (again, first map[string][]int) {
	b.t.Helper()
	again, first = map[string][]int{}, map[string][]int{}
	harness.Consume(b.t, b.c.Kafka.Brokers, []string{topic}, func(r *kgo.Record) {
		var n int
		if _, err := fmt.Sscanf(string(r.Value), `{"n": %d`, &n); err != nil {
			b.t.Fatalf("value %.60q: %v", r.Value, err)
		}
		into := first
		if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "x-outbox-replay" }) {
			into = again
		}
		into[string(r.Key)] = append(into[string(r.Key)], n)
	})
	return again, first
}

// What topics have lost is asked for while events are spooled, and once more when what was spooled is sent and a crash
// has brought its rows of the spool back. Breaks it catches: an event that is published once more in front of older
// ones that are spooled, or not at all, or twice, or from the spool, too; one in the spool that its lane's repair
// leaves out.
func TestRepairBesideASpoolIsDoneOnce(t *testing.T) {
	t.Parallel()
	b, back := spooling(t)
	back()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 100, 3))
	b.waitRecorded(100)
	b.waitExecuted(b.ask(store.RequestPause, store.Filter{}))
	b.pg.Exec(t, filled(101, 2000, 3))
	b.waitSpooled(2000)
	request := b.ask(store.RequestRepublish, store.Filter{IDs: b.idsOf("3, 6, 10, 11")})
	b.pg.Exec(t, filled(2101, 100, 3))
	b.waitSpooled(2100)
	if asked, err := b.asker().Request(t.Context(), request); err != nil || asked.Done != 0 {
		t.Errorf("while what came before it is spooled: got %+v, %v; want nothing done", asked, err)
	}
	b.pg.Exec(t, "CREATE TABLE kept AS SELECT * FROM cdc_relay_spool")
	b.waitExecuted(b.ask(store.RequestResume, store.Filter{}))
	b.waitExecuted(request)
	b.waitRecorded(2200)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	b.waitFree()

	b.pg.Exec(t, "INSERT INTO cdc_relay_spool SELECT * FROM kept; UPDATE cdc_relay_state SET dirty = true")
	request = b.ask(store.RequestRepublish, store.Filter{IDs: b.idsOf("3, 101, 2000")})
	_, stop = b.start()
	b.waitExecuted(request)
	b.waitRecorded(2200)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	again, first := b.numbered("outbox.event.order")
	if got, want := fmt.Sprint(again), "map[k0:[3 6 3] k1:[10] k2:[11 101 2000]]"; got != want {
		t.Errorf("published once more: got %s, want %s", got, want)
	}
	n := 0
	for key, numbers := range first {
		if n += len(numbers); !slices.IsSorted(numbers) {
			t.Errorf("%s: out of order", key)
		}
	}
	if n != 2200 {
		t.Errorf("published first: got %d, want 2200", n)
	}
}
