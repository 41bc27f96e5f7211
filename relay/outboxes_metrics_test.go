package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: events of one outbox counted as another's, or not at all; a tenant that comes without a series.
// Seen to fail with dead letters not counted.
func TestMetricsCountByOutbox(t *testing.T) {
	t.Parallel()
	b := newTenants(t, "tenant_1", "tenant_2")
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.write(30, "tenant_1")
	b.write(20, "tenant_2")
	b.create("tenant_3")
	b.publish("tenant_3")
	b.write(10, "tenant_3")
	b.pg.Exec(t, `INSERT INTO tenant_2.outbox_events (id, aggregate_type, aggregate_id, event_type, payload) VALUES
		('00000000-0000-7000-8000-00000000ffff', 'not a topic', 'k', 'x', '{}')`)
	const want = "map[other:0 0 tenant_1.outbox_events:30 0 tenant_2.outbox_events:20 1 tenant_3.outbox_events:10 0]"
	harness.Eventually(t, time.Minute, "counters by outbox", func(context.Context) string {
		families, err := r.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, name := range []string{"outbox_published_by_outbox_total", "outbox_failed_by_outbox_total"} {
			for _, f := range families {
				for _, series := range f.GetMetric() {
					if f.GetName() == name {
						for _, l := range series.GetLabel() {
							if l.GetName() == "outbox" {
								got[l.GetValue()] += fmt.Sprint(" ", series.GetCounter().GetValue())
							}
						}
					}
				}
			}
		}
		for name, counts := range got {
			got[name] = counts[1:]
		}
		if said := fmt.Sprint(got); said != want {
			return "got " + said
		}
		return ""
	})
}
