package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
)

// park stores n events {"n": 1…} aside as an earlier process would have, over so many keys, the head of each lane due
// then.
func (b *bed) park(n, keys int, due string) {
	b.t.Helper()
	b.pg.Exec(b.t, fmt.Sprintf(`INSERT INTO cdc_relay_parked
			(source, event_id, topic, key, epoch, from_stream, position_order, position_index,
			aggregate_type, aggregate_id, event_type, payload, created_at, error_class, next_retry_at)
		SELECT (SELECT source FROM cdc_relay_state), gen_random_uuid(), 'outbox.event.order', convert_to('k' || i %% %[2]d,
			'UTF8'), 0, true, 1, i,
			'order', 'k' || i %% %[2]d, 'made', convert_to(jsonb_build_object('n', i)::text, 'UTF8'), now()::text, 'blocked',
				CASE WHEN i <= %[2]d THEN %[3]s END
		FROM generate_series(1, %[1]d) i`, n, keys, due))
}

// started makes the relay's state, by a start and a stop.
func (b *bed) started() {
	b.t.Helper()
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	mustStop(b.t, stop)
}

// A lane of several portions is drained. The broker refuses an event in the middle of one for a while, in the middle
// of another permanently, and in a third there is one that cannot be a message. Break it catches: a portion that was
// read ahead and goes out although not all in front of it did. Seen to fail with a run that goes on behind a refusal.
func TestWhatWasReadAheadWaitsForWhatIsInFrontOfIt(t *testing.T) {
	t.Parallel()
	const n = 9000
	b := newBed(t)
	b.c.Retry.InitialBackoff = config.Duration(20 * time.Millisecond)
	j := newJudgeful(func(value []byte, try int) *sink.Reason {
		switch {
		case is(value, 2500) && try <= 2, is(value, 4001) && try <= 2:
			return maybeLater
		case is(value, 5100):
			return &sink.Reason{Class: outbox.Permanent, Code: "NEVER", Text: "not at all"}
		}
		return nil
	})
	b.started()
	b.park(n, 1, "now()")
	b.pg.Exec(t, "UPDATE cdc_relay_parked SET headers = '[]' WHERE position_index = 7300")
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(n - 2)
	b.waitDead(2)
	b.waitNoneHeld(r)
	mustStop(t, stop)
	j.wantInOrder(t, n, 5100, 7300)
	if tries := j.triesOf(`{"n": 2500}`); tries != 2 {
		t.Errorf("refusals of the event that is taken at its third try: got %d, want 2", tries)
	}
}
