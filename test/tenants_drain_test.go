package test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// drained fills the slot while no relay runs, with transactions of 100 rows, each of the next table, and returns how
// many events a second the relay publishes then, by the broker's clock, and records, by ours.
func (f *tenancy) drained(t *testing.T, events int, topic *harness.Reading) (published, journaled float64) {
	t.Helper()
	const perTransaction = 100
	f.pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN
 FOR i IN 1..%d LOOP
  EXECUTE format('INSERT INTO tenant_%%s.outbox_events (aggregate_type, aggregate_id, event_type, payload)
   SELECT ''order'', ''k'' || (%%s * 7 + n) %%%% 1000, ''x'', jsonb_build_object(''n'', n, ''pad'', repeat(''x'', 250))
   FROM generate_series(1, %d) n', i %% %d, i);
  COMMIT;
 END LOOP; END $$`, events/perTransaction, perTransaction, len(f.all)))
	f.pg.Exec(t, "CHECKPOINT")
	end := f.pg.Query(t, "SELECT pg_current_wal_insert_lsn()")
	f.relay.Start(t)
	began := time.Now()
	harness.Eventually(t, 5*time.Minute, "the slot is empty", func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, fmt.Sprintf(`SELECT CASE WHEN confirmed_flush_lsn >= '%s' THEN 'ok' ELSE
 confirmed_flush_lsn::text END FROM pg_replication_slots WHERE slot_name = '%s'`, end, f.settings.Slot()))
		if err != nil || got != "ok" {
			return fmt.Sprintf("confirmed: %s, %v", got, err)
		}
		return ""
	})
	took := time.Since(began)
	if f.settings["outbox.after_publish"] == "mark" {
		f.marked(t)
		t.Logf("%d tables: the last row was marked %v after the start", len(f.all), time.Since(began).Round(time.Millisecond))
	}
	f.relay.Stop(t)
	var first, last time.Time
	n := 0
	topic.Read(t, func(r *kgo.Record) {
		if n++; n == 1 || r.Timestamp.Before(first) {
			first = r.Timestamp
		}
		if r.Timestamp.After(last) {
			last = r.Timestamp
		}
	})
	if n != events {
		t.Fatalf("records of a drain: got %d, want %d", n, events)
	}
	return float64(events) / last.Sub(first).Seconds(), float64(events) / took.Seconds()
}

// A slot full of events of many tables is drained as fast as one of a single table. Break it catches: work that grows
// with the number of tables, per event, batch or transaction.
func TestManyTablesDrainAsFastAsOne(t *testing.T) {
	harness.Full(t)
	tables, events := harness.Count(t, "tables of a drain"), harness.Count(t, "events of a drain of tables")
	if tables == 0 {
		t.Skip("at night")
	}
	const turns, atLeast = 5, 0.8
	for _, after := range []string{"keep", "mark"} {
		t.Run(after, func(t *testing.T) {
			var rates, ratios [2][]float64
			var of [2]*tenancy
			var topics [2]*harness.Reading
			for i, n := range []int{1, tables} {
				of[i] = newTenancy(t, n, "outbox.after_publish", after)
				of[i].start(t)
				of[i].relay.Stop(t)
				topics[i] = harness.NewReading(of[i].kafka.Addrs, []string{of[i].topic})
			}
			for turn := range turns {
				var published, journaled [2]float64
				for _, i := range [][]int{{0, 1}, {1, 0}}[turn%2] {
					published[i], journaled[i] = of[i].drained(t, events, topics[i])
					rates[i] = append(rates[i], published[i])
				}
				ratios[0] = append(ratios[0], published[1]/published[0])
				ratios[1] = append(ratios[1], journaled[1]/journaled[0])
			}
			t.Logf("events/s of 1 table: %.0f, of %d: %.0f; of that, published: %.2f, confirmed, with the start: %.2f; load %s",
				median(rates[0]), tables, median(rates[1]), median(ratios[0]), median(ratios[1]), harness.LoadAverage())
			if got := median(ratios[0]); after == "keep" && got < atLeast {
				t.Errorf("the rate of %d tables is %.2f of that of one, want at least %v: %.2f", tables, got, atLeast, ratios[0])
			}
		})
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
