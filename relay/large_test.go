package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Large and small events come in one piece of the stream. The small ones are copied out of its read buffer, the large
// ones stay in it while they wait, here for a broker that answers nothing while more of the stream comes. Break it
// catches: a buffer that is used again while an event lies in it, which is then sent with bytes of others. Seen to fail
// with a buffer kept only if the last event of its batch is large.
func TestLargeEventsAmongSmallOnesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := newJudgeful(func([]byte, int) *sink.Reason { return nil })
	accept, answer := j.Answer, make(chan struct{})
	j.Answer = func(a sinktest.Attempt) sinktest.Plan {
		plan := accept(a)
		plan.Until = answer
		return plan
	}
	r, _ := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	write := func(from, to, most int, filler string) {
		t.Helper()
		b.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
SELECT 'order', 'k' || i, 'made', jsonb_build_object('n', i, 'filler',
 repeat('%s', CASE i %% 4 WHEN 0 THEN %d ELSE 1 END))
FROM generate_series(%d, %d) i`, filler, most, from, to))
	}
	const first, mixed, all = 100, 500, 6000
	write(1, first, 1, "a") // requests for all partitions are under way
	b.waitReceived(r, first)
	write(first+1, mixed-1, 6000, "b") // the last one is small
	b.waitReceived(r, mixed-1)
	write(mixed, all, 1000, "c") // small ones only: the buffers go round
	b.waitReceived(r, all)
	close(answer)
	b.waitRecorded(all)
	want := map[string]string{}
	rows, err := b.pg.Connect(t).Query(t.Context(), "SELECT aggregate_id, payload::text FROM outbox_events")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var key, payload string
		if err := rows.Scan(&key, &payload); err != nil {
			t.Fatal(err)
		}
		want[key] = payload
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, m := range j.Log("outbox.event.order") {
		if !bytes.Equal(m.Value, []byte(want[string(m.Key)])) {
			if wrong++; wrong <= 3 {
				t.Errorf("key %q: got %.60q, want %.60q", m.Key, m.Value, want[string(m.Key)])
			}
		}
		delete(want, string(m.Key))
	}
	if wrong > 0 || len(want) > 0 {
		t.Errorf("%d events have bytes of others, %d have no record; want none", wrong, len(want))
	}
}

// waitReceived waits until so many events came from the stream.
func (b *bed) waitReceived(r *relay.Relay, n int) {
	b.t.Helper()
	harness.Eventually(b.t, bedPatience, "events are received", func(context.Context) string {
		if got := metric(b.t, r, "cdc_events_received_total"); got < float64(n) {
			return fmt.Sprintf("got %v, want %d", got, n)
		}
		return ""
	})
}
