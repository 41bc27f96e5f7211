package configure

import (
	"fmt"
	"strings"
	"testing"
)

// Breaks it catches: a pattern for schemas that have no beginning in common, for tables of other columns, or that hides
// a likelier table; one that is so narrow that it leaves out the next tenant. Seen to fail without the look at likelier
// tables, with the types not compared, and with digits taken for a part of the beginning.
func TestTablesOfManySchemasAreAPattern(t *testing.T) {
	in := func(schema string, t table) table { t.schema = schema; return t }
	own := of("outbox", "id uuid", "type text", "payload jsonb", "aggregate_id text")
	more := of("outbox", "id uuid", "type text", "payload json", "aggregate_id text", "headers jsonb", "note text")
	numbers := of("outbox", "id bigint", "type text", "payload jsonb", "aggregate_id text")
	bare := of("outbox", "id uuid", "payload jsonb")
	other := of("events", "id uuid", "type text", "payload jsonb", "aggregate_id text")
	for _, row := range []struct {
		tables []table
		want   string // pattern and schemas that fit; empty: no pattern
		others string
	}{
		{[]table{in("tenant_1", own), in("tenant_10", own), in("tenant_11", more)}, "tenant_*.outbox 3", ""},
		{[]table{in("shop1", own), in("shop12", own), in("public", own)}, "shop*.outbox 2", ""},
		{[]table{in("t-acme_eu", own), in("t-beta", own), in("s_1", own), in("s_2", other)}, "t-*.outbox 2", ""},
		{[]table{in("t_1", own), in("t_2", numbers), in("t_3", own), in("t_4", bare)}, "t_*.outbox 2",
			"t_2.outbox has bigint in the column id, and not uuid; t_4.outbox has no column type"},
		{[]table{in("a.b_1", own), in("a.b_2", own)}, `"a.b_*".outbox 2`, ""},
		{[]table{in("acme", own), in("beta", own)}, "", ""},
		{[]table{in("t_1", own), in("t_2", numbers)}, "", ""},
		{[]table{in("t_1", own), in("t_2", other)}, "", ""},
		{[]table{in("*_1", own), in("*_2", own)}, "", ""},
		{[]table{in("t_1", other), in("t_2", other), in("public", own)}, "", ""},
		{[]table{in("_1", own), in("_2", own)}, "", ""},
	} {
		got := ""
		s, are := tenants(row.tables)
		if are {
			got = fmt.Sprint(s, " ", len(s.fit))
		}
		if got != row.want || are && strings.Join(s.others, "; ") != row.others {
			t.Errorf("%v: got %s, others %v; want %s, others %s", row.tables, got, s.others, row.want, row.others)
		}
	}
}
