package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: rows of one outbox published again for a request about another one; a request about a table that
// cannot be read, or is gone, that stands in the way of those behind it. Seen to fail with what is left out, gone or
// fails tried again.
func TestRowsOfOneOutboxArePublishedAgain(t *testing.T) {
	t.Parallel()
	b := newTenants(t, "tenant_1", "tenant_2", "tenant_3")
	b.c.Drift.Interval = config.Duration(time.Hour) // the requests notice first
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.write(5, b.names...)
	b.wantAll()
	c := relay.StoreConfig(b.c)
	root, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var ids []string
	for n := range 5 {
		ids = append(ids, fmt.Sprintf("00000000-0000-7000-8000-%012d", n+1))
	}
	ask := map[string]*store.Store{}
	for _, name := range b.names {
		if ask[name], err = root.Named(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	b.pg.Exec(t, "ALTER TABLE tenant_2.outbox_events RENAME COLUMN payload TO body; DROP TABLE tenant_3.outbox_events")
	for _, name := range []string{"tenant_2", "tenant_3", "tenant_1"} {
		_, err := ask[name].AddRequest(t.Context(), store.RequestRepublish, store.Filter{IDs: ids}, "ann", "")
		if err != nil {
			t.Fatal(name, err)
		}
	}
	b.waitQuery("two are refused, one is done", `SELECT string_agg(CASE WHEN r.error IS NULL THEN 'done ' || r.done
		ELSE 'refused' END, ', ' ORDER BY o.table_name) FROM cdc_relay_request r JOIN cdc_relay_source o
		ON o.source = (r.filter ->> 'source')::int WHERE r.finished_at IS NOT NULL`, "done 5, refused, refused")
	b.waitQuery("they are published", "SELECT count(*) FROM cdc_relay_parked", "0")
	again := map[string]int{}
	harness.Consume(t, b.c.Kafka.Brokers, b.topics, func(r *kgo.Record) {
		if harness.Header(r, "x-outbox-replay") != nil {
			again[string(harness.Header(r, "event_type"))]++
		}
	})
	if got := fmt.Sprint(again); got != "map[tenant_1:5]" {
		t.Errorf("published again: got %s, want five of the first", got)
	}
	if got := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_request WHERE error LIKE '%payload%'"); got != "1" {
		t.Errorf("refusals that name the column: got %s, want one", got)
	}
}
