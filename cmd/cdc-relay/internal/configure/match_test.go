package configure

import (
	"strings"
	"testing"
)

// of is a table of "name type" pairs.
func of(name string, columns ...string) table {
	t := table{schema: "public", name: name}
	for _, c := range columns {
		columnName, kind, _ := strings.Cut(c, " ")
		t.columns = append(t.columns, column{columnName, kind})
	}
	return t
}

// Breaks it catches: an outbox that is not recognised, a table that is taken for one, a column of a type that cannot be
// read. Seen to fail without the look at types, and with any table that has an id, a type and a payload.
func TestTablesAreRecognisedByTheirColumns(t *testing.T) {
	for _, row := range []struct {
		table table
		want  string // by the order of fields; - is none; empty: no outbox
	}{
		{of("outbox_events", "id uuid", "seq bigint", "aggregate_type text", "aggregate_id text", "event_type text",
			"payload jsonb", "headers jsonb", "created_at timestamp with time zone", "published_at timestamp with time zone"),
			"id event_type payload aggregate_type aggregate_id headers created_at"},
		{of("outbox", "id uuid", "aggregatetype character varying", "aggregateid character varying",
			"type character varying", "payload jsonb"), "id type payload aggregatetype aggregateid - -"},
		{of("domain_events", "event_id bigint", "event_name text", "entity_type text", "entity_id bigint", "data bytea",
			"metadata json", "occurred_at timestamp without time zone", "sent boolean"),
			"event_id event_name data entity_type entity_id metadata occurred_at"},
		{of("message_outbox", "Id uuid", "MessageType text", "Body text", "OccurredOn timestamp with time zone"),
			"Id MessageType Body - - - OccurredOn"},
		{of("outbox", "id uuid", "type text", "message jsonb", "message_key text", "headers text"),
			"id type message - message_key - -"},
		{of("outbox", "id uuid", "kind text", "name text", "data jsonb"), "id kind data - - - -"},
		{of("outbox", "id uuid", "topic text", "payload jsonb"), "id topic payload - - - -"},
		{of("outbox", "id uuid", "payload jsonb"), "id - payload - - - -"},

		{of("products", "id uuid", "type text", "data jsonb", "created_at timestamp with time zone"), ""},
		{of("payloads", "id uuid", "payload jsonb"), ""},
		{of("outbox", "id boolean", "type text", "payload jsonb"), ""},
		{of("outbox", "id uuid", "type text", "payload integer"), ""},
		{of(`out"box`, "id uuid", "type text", "payload jsonb"), ""},
		{of("users", "id uuid", "name text", "email text"), ""},
	} {
		c, is := recognise(row.table)
		var got []string
		for _, f := range fields {
			column := c.of[f.key]
			if column == "" {
				column = "-"
			}
			got = append(got, column)
		}
		if shown := strings.Join(got, " "); is != (row.want != "") || is && shown != row.want {
			t.Errorf("%v: got %v, %s; want %q", row.table, is, shown, row.want)
		}
	}
	all := recogniseAll([]table{
		of("audit_events", "id uuid", "event_type text", "payload jsonb", "aggregate_id text", "aggregate_type text"),
		of("outbox", "id uuid", "type text", "payload jsonb"),
	})
	if len(all) != 2 || all[0].name != "outbox" {
		t.Errorf("the likeliest: got %v, want the one whose name says so", list(all))
	}
}

// Break it catches: a value that YAML, or the file's variables, read as something else. Seen to fail with nothing
// quoted.
func TestTextsAreQuotedWhereYAMLNeedsIt(t *testing.T) {
	for text, want := range map[string]string{
		"public.outbox_events": "public.outbox_events", "postgres://u@db:5432/shop?a=b": "postgres://u@db:5432/shop?a=b",
		"": `""`, "{aggregate_id}": `"{aggregate_id}"`, "a: b": `"a: b"`, "a #b": `"a #b"`, "null": `"null"`,
		"a$b": `"a$$b"`, "*": `"*"`, "x:": `"x:"`, "k": "k",
	} {
		if got := quote(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
