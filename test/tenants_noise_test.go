package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// steadily calls do at the pace until the time is over, and makes up for nothing.
func steadily(t *testing.T, every, during time.Duration, do func(n int) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n, end := 0, time.After(during); ; n++ {
		select {
		case <-end:
			return
		case <-ticker.C:
		}
		if err := do(n); err != nil {
			t.Errorf("write: %v", err)
			return
		}
	}
}

// noisy writes 20 events a second of the quiet tenants, one in a transaction, and, if it is loud, 2,000 of the first
// tenant, 20 in a transaction, every tenth cannot be a message. It returns the times from the insert to the
// broker's time of the record, of the quiet tenants.
func (f *tenancy) noisy(t *testing.T, during time.Duration, loud bool, topic *harness.Reading) (took []time.Duration) {
	t.Helper()
	var writers sync.WaitGroup
	quiet, flood := f.pg.Connect(t), f.pg.Connect(t)
	writers.Go(func() {
		steadily(t, 50*time.Millisecond, during, func(n int) error {
			_, err := quiet.Exec(t.Context(), fmt.Sprintf(`INSERT INTO tenant_%d.outbox_events (aggregate_type, aggregate_id,
 event_type, payload) VALUES ('order', 'k%d', 'quiet', '{}')`, 1+n%(len(f.all)-1), n%10))
			return err
		})
	})
	if loud {
		writers.Go(func() {
			steadily(t, 10*time.Millisecond, during, func(n int) error {
				_, err := flood.Exec(t.Context(), fmt.Sprintf(`INSERT INTO tenant_0.outbox_events (aggregate_type, aggregate_id,
 event_type, payload, headers) SELECT 'order', 'k' || (%d + n) %% 1000, 'loud', '{}',
 CASE WHEN n %% 10 = 0 THEN '[]'::jsonb END FROM generate_series(1, 20) n`, n))
				return err
			})
		})
	}
	writers.Wait()
	f.pg.WaitConfirmed(t, f.settings.Slot(), settlePatience)
	topic.Read(t, func(r *kgo.Record) {
		if string(harness.Header(r, "event_type")) != "quiet" {
			return
		}
		created, err := time.Parse(time.RFC3339Nano, strings.Replace(string(harness.Header(r, "created_at")), " ", "T", 1))
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, r.Timestamp.Sub(created))
	})
	return took
}

// One tenant writes a hundred times as much as all others together, and a tenth of that cannot be a message. Break it
// catches: events of the others that wait for it.
func TestALoudTenantLeavesTheOthersAlone(t *testing.T) {
	harness.Full(t)
	turns := harness.Count(t, "turns of a loud tenant")
	if turns == 0 {
		t.Skip("at night")
	}
	f := newTenancy(t, 40, "dlq.breaker.count", 1_000_000, "outbox.after_publish", "keep")
	f.start(t)
	topic := harness.NewReading(f.kafka.Addrs, []string{f.topic})
	const during, mostTimes = 2 * time.Second, 1.5
	f.noisy(t, during, true, topic)
	var quiet, loud []time.Duration
	for range turns { // what else the machine does falls on both alike
		quiet = append(quiet, f.noisy(t, during, false, topic)...)
		loud = append(loud, f.noisy(t, during, true, topic)...)
	}
	harness.Eventually(t, time.Minute, "what cannot be a message is dead", func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, `SELECT count(*) FROM tenant_0.outbox_events WHERE headers = '[]' AND id NOT IN
 (SELECT original_id FROM outbox_events_dlq)`)
		if err != nil || got != "0" {
			return fmt.Sprintf("%s are not: %v", got, err)
		}
		return ""
	})
	slices.Sort(quiet)
	slices.Sort(loud)
	at := func(all []time.Duration, percent int) time.Duration { return all[len(all)*percent/100] }
	for _, percent := range []int{50, 90, 95, 99} {
		t.Logf("p%d: %v, beside a loud tenant %v", percent, at(quiet, percent), at(loud, percent))
	}
	t.Logf("%d events each; load %s", len(quiet), harness.LoadAverage())
	if got := float64(at(loud, 99)) / float64(at(quiet, 99)); got > mostTimes {
		t.Errorf("p99 of quiet tenants beside a loud one: got %.2f times that without, want at most %v", got, mostTimes)
	}
}
