package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// composedColumns are those of a table that has tenant and order_id in the place of an aggregate.
var composedColumns = outbox.Columns{ID: "Id", EventType: "Type", Payload: "PayloadJson",
	Extra: []string{"order_id", "tenant"}, TypeParts: []outbox.Part{{Literal: "v1."}, {Column: "Type"}},
	IDParts: []outbox.Part{{Column: "tenant"}, {Literal: `:'\`}, {Column: "order_id"}}}

// Breaks it catches: a call that asks the table for a column of the aggregate. Seen to fail with a
// catch-up that names one.
func TestTablesWithoutAnAggregateWorkInEveryCall(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE "Out" ("Id" bigint PRIMARY KEY, "Type" text, "PayloadJson" jsonb, published_at timestamptz)`)
	c := usual(t, pg)
	c.Table, c.Columns = "public.Out", outbox.Columns{ID: "Id", EventType: "Type", Payload: "PayloadJson"}
	s := owner(t, pg, c)
	pg.Exec(t, `INSERT INTO "Out" SELECT i, 'made', '{}' FROM generate_series(1, 3) i`)
	everyCall(t, s, func(i int) string { return fmt.Sprint(i) })
	if _, err := s.OfAggregate(t.Context(), "", "a", 0, 10); !errors.Is(err, store.ErrFilter) {
		t.Errorf("events of an aggregate: got %v, want that there are none to look for", err)
	}
}

// Breaks it catches: a composed aggregate that find does not show, or not find; one of nothing that is found by its
// literals; a literal that is not quoted. Seen to fail with literals left out, and with NULL not taken for NULL.
func TestFindComposesAggregates(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE "Out" ("Id" bigint PRIMARY KEY, "Type" text, "PayloadJson" jsonb, tenant text, order_id int,
 published_at timestamptz); INSERT INTO "Out" VALUES (1, 'made', '{}', 'acme', 17), (2, 'sent', '{}', 'acme', 17),
 (3, 'made', '{}', NULL, NULL), (4, 'made', '{}', 'acme', NULL)`)
	c := usual(t, pg)
	c.Table, c.Columns = "public.Out", composedColumns
	s := owner(t, pg, c)
	for _, x := range []struct {
		kind, id string
		want     []string
	}{
		{"v1.made", `acme:'\17`, []string{"1"}}, {"v1.sent", `acme:'\17`, []string{"2"}},
		{"v1.made", `acme:'\`, []string{"4"}}, {"v1.made", `:'\`, nil}, {"", `acme:'\17`, nil},
	} {
		got, err := s.OfAggregate(t.Context(), x.kind, x.id, 0, 10)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("events of %s %s: got %q, %v; want %q", x.kind, x.id, got, err, x.want)
		}
	}
	found, err := s.Find(t.Context(), []string{"1", "3"})
	must(t, "find", err)
	text := func(p *string) string {
		if p == nil {
			return "NULL"
		}
		return *p
	}
	for i, want := range []string{`v1.made acme:'\17`, "v1.made NULL"} {
		if got := text(found[i].Row.AggregateType) + " " + text(found[i].Row.AggregateID); got != want {
			t.Errorf("event %s: got aggregate %s, want %s", found[i].ID, got, want)
		}
	}
	c.Columns.TypeParts = nil
	got, err := open(t, c).OfAggregate(t.Context(), "", `acme:'\17`, 0, 10)
	if want := []string{"2", "1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("events of an aggregate without a type: got %q, %v; want %q", got, err, want)
	}
	if got, err := open(t, c).OfAggregate(t.Context(), "x", `acme:'\17`, 0, 10); err != nil || len(got) != 0 {
		t.Errorf("events of an aggregate of a type, where there are none: got %q, %v; want none", got, err)
	}
	c.Columns.IDParts = nil
	if got, err := open(t, c).OfKey(t.Context(), "", 0, 10); err != nil || len(got) != 0 {
		t.Errorf("events of an empty key, where there are no aggregates: got %q, %v; want none", got, err)
	}
}

// Seen to fail with the names that columns have by default.
func TestMigrateMakesNoColumnsForAnAggregateThatIsNotWanted(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.Columns = composedColumns
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	got := pg.Query(t, `SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
 WHERE attrelid = 'outbox_events'::regclass AND attnum > 0`)
	if want := "Id seq Type PayloadJson headers created_at order_id tenant published_at"; got != want {
		t.Errorf("columns: got %s, want %s", got, want)
	}
}
