package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// seenLane is what the topic has of a key of a tenant.
type seenLane struct{ last, duplicates int }

// tenantVerdict is what a judgement of all tenants has counted.
type tenantVerdict struct {
	records, duplicates, late int
}

// judge compares what the writers committed with the topic and the journal: each event of each tenant once, or again
// as a duplicate, in the order of its key. Only what a table had before the publication got it may be late.
func (f *tenancy) judge(t *testing.T) (v tenantVerdict) {
	t.Helper()
	lanes, sources, wrong := map[string]*seenLane{}, map[string]string{}, 0
	fail := func(format string, args ...any) {
		if wrong++; wrong <= 20 {
			t.Errorf(format, args...)
		}
	}
	harness.Consume(t, f.kafka.Addrs, []string{f.topic}, func(r *kgo.Record) {
		v.records++
		tenant, key, id := string(harness.Header(r, "event_type")), string(r.Key), string(harness.Header(r, "id"))
		var n int
		if _, err := fmt.Sscanf(string(r.Value), `{"n": %d`, &n); err != nil {
			t.Fatalf("value %q: %v", r.Value, err)
		}
		source := string(harness.Header(r, "x-outbox-source"))
		if former := sources[tenant]; former != "" && former != source {
			fail("%s: source %s at %d@%d, and %s before", tenant, source, r.Partition, r.Offset, former)
		}
		sources[tenant] = source
		if !strings.HasSuffix(id, fmt.Sprintf("%08d", n)) {
			fail("%s %s: event %d has the id %s", tenant, key, n, id)
		}
		if harness.Header(r, "x-outbox-late") != nil {
			if v.late++; key != "early" {
				fail("%s %s: event %d at %d@%d is late: the stream left it out", tenant, key, n, r.Partition, r.Offset)
			}
		}
		lane := lanes[tenant+" "+key]
		if lane == nil {
			lane = &seenLane{}
			lanes[tenant+" "+key] = lane
		}
		switch {
		case n <= lane.last:
			lane.duplicates++
			v.duplicates++
			return
		case n != lane.last+1:
			fail("%s %s: event %d at %d@%d comes after %d", tenant, key, n, r.Partition, r.Offset, lane.last)
		}
		lane.last = n
	})
	expect := func(name, key string, want int) {
		got := lanes[name+" "+key]
		delete(lanes, name+" "+key)
		switch {
		case got == nil && want > 0:
			fail("%s %s: none of %d events came", name, key, want)
		case got != nil && got.last != want:
			fail("%s %s: the last event is %d, want %d", name, key, got.last, want)
		}
	}
	for _, x := range f.all {
		for k := range x.lanes {
			expect(x.name, fmt.Sprintf("k%d", k), x.lanes[k].committed())
		}
		expect(x.name, "early", x.early)
	}
	for lane, got := range lanes {
		fail("%s: %d events came of which no one wrote any", lane, got.last)
	}
	f.judgeJournal(t)
	if wrong > 20 {
		t.Errorf("%d findings in all", wrong)
	}
	t.Logf("%d tenants, %d of them still there; %+v", len(f.all), len(f.live()), v)
	return v
}

// judgeJournal compares how many events the journal has of each table with what its tenant has written, and wants each
// of them at a place of its own.
func (f *tenancy) judgeJournal(t *testing.T) {
	t.Helper()
	rows, err := f.pg.Connect(t).Query(t.Context(), `SELECT table_oid::text, count(DISTINCT (partition, "offset"))
 FROM cdc_relay_journal JOIN cdc_relay_source USING (source) GROUP BY table_oid`)
	if err != nil {
		t.Fatal(err)
	}
	journaled := map[string]int{}
	var oid string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&oid, &n}, func() error { journaled[oid] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, x := range f.all {
		if got := journaled[f.oids[x]]; got != x.events() {
			if wrong++; wrong <= 20 {
				t.Errorf("places in the journal of %s: got %d, want %d", x.name, got, x.events())
			}
		}
	}
}

// marked waits until the rows of all tables that are there are marked.
func (f *tenancy) marked(t *testing.T) {
	t.Helper()
	f.pg.Exec(t, `CREATE OR REPLACE FUNCTION unmarked() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE t text; n bigint; total bigint := 0;
BEGIN
 FOR t IN SELECT schemaname FROM pg_tables WHERE tablename = 'outbox_events' AND schemaname LIKE 'tenant_%' LOOP
  EXECUTE format('SELECT count(*) FROM %I.outbox_events WHERE published_at IS NULL', t) INTO n;
  total := total + n;
 END LOOP;
 RETURN total;
END $$`)
	harness.Eventually(t, 5*time.Minute, "every row is marked", func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, "SELECT unmarked()")
		if err != nil || got != "0" {
			return fmt.Sprintf("%s are not: %v", got, err)
		}
		return ""
	})
}
