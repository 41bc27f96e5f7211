package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
)

// park stores n events {"n": 1…} aside as an earlier process would have, over so many keys, the head of each lane due then.
func (b *bed) park(n, keys int, due string) {
	b.t.Helper()
	b.pg.Exec(b.t, fmt.Sprintf(`INSERT INTO cdc_relay_parked (source, event_id, topic, key, epoch, from_stream, position_order, position_index,
			aggregate_type, aggregate_id, event_type, payload, created_at, error_class, next_retry_at)
		SELECT (SELECT source FROM cdc_relay_state), gen_random_uuid(), 'outbox.event.order', convert_to('k' || i %% %[2]d, 'UTF8'), 0, true, 1, i,
			'order', 'k' || i %% %[2]d, 'made', convert_to(jsonb_build_object('n', i)::text, 'UTF8'), now()::text, 'blocked', CASE WHEN i <= %[2]d THEN %[3]s END
		FROM generate_series(1, %[1]d) i`, n, keys, due))
}

// started makes the relay's state, by a start and a stop.
func (b *bed) started() {
	b.t.Helper()
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	mustStop(b.t, stop)
}

// Breaks it catches: a lane that is drained event by event, or with a look that reads the rest of the lane each time.
func TestLongParkedLaneDrainsFast(t *testing.T) {
	const n = 20_000
	b := newBed(t)
	b.started()
	b.park(n, 1, "now()")
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	begun := time.Now()
	b.waitQuery("nothing is parked", "SELECT count(*) FROM cdc_relay_parked", "0")
	took := time.Since(begun)
	t.Logf("%d blocked events drained in %v: %.0f/s", n, took, n/took.Seconds())
	const most = 3 * time.Second // three times what 20,000/s need
	if took > most {
		t.Errorf("%d blocked events: drained in %v, want at most %v", n, took, most)
	}
	b.waitNoneHeld(r)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", n)
}

// Breaks it catches: a start that reads the parked events, or their lanes one by one; a new key that waits for them.
func TestManyParkedEventsDelayNoStart(t *testing.T) {
	const n = 50_000
	b := newBed(t)
	b.started()
	b.park(n, 5000, "now() + interval '1 hour'")
	b.pg.Exec(t, insert("order", "fresh", fmt.Sprintf(`{"n": %d}`, n+1), ""))
	begun := time.Now()
	r, stop := b.start()
	b.waitRecorded(1)
	took := time.Since(begun)
	t.Logf("%d parked events, %d keys: the first new event recorded %v after the start", n, r.Status().HeldLanes, took)
	if took > 6*time.Second { // three times the 2 s that it may take
		t.Errorf("first event after a start with %d parked: got %v, want at most 2s (6 on a loaded machine)", n, took)
	}
	if held := r.Status().HeldLanes; held != 5000 {
		t.Errorf("held lanes: got %d, want 5000", held)
	}
	mustStop(t, stop)
}
