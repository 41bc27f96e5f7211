package config

import (
	"slices"
	"strings"
	"testing"
)

// A table without a column for the aggregate's type has no topic by the default template. Breaks it catches: all events
// in one topic with an odd name, and a routing key that begins with a dot. Seen to fail with the rules left out, and
// with that of the routing key asked for every sink.
func TestTopicsCannotNameAnAggregateTypeThatTheTableLacks(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		want []string // keys of the problems
	}{
		{set: map[string]string{"outbox.columns.aggregate_type": ""}, want: []string{"message.topic"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "message.topic": "x.{aggregate_type}.{event_type}"},
			want: []string{"message.topic"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "message.topic": "x.{event_type}"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "{kind}"}},
		{set: map[string]string{"outbox.columns.aggregate_id": ""}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "message.topic": "x", "sink": "bullmq",
			"bullmq.job_name": "{aggregate_type}"}, want: []string{"bullmq.job_name"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "message.topic": "x", "sink": "rabbitmq"},
			want: []string{"rabbitmq.routing_key"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "message.topic": "x", "sink": "rabbitmq",
			"rabbitmq.routing_key": "{event_type}"}},
		{set: map[string]string{"outbox.columns.aggregate_type": "", "outbox.columns.aggregate_id": "a}b",
			"sink": "rabbitmq"},
			want: []string{"message.topic", "outbox.columns.aggregate_id", "rabbitmq.routing_key"}},
	} {
		var input Input
		for key, value := range c.set {
			input.Flags = append(input.Flags, Setting{"--set", key, value})
		}
		var got []string
		for _, p := range problemsOf(t, input) {
			if got = append(got, p.Key); p.Allowed == "" {
				t.Errorf("%v: %s does not say what is allowed", c.set, p)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got problems with %q, want %q", c.set, got, c.want)
		}
	}
}

// Seen to fail with the event's own field looked for in the template of an aggregate's.
func TestNamesInTemplatesStandForColumns(t *testing.T) {
	for _, c := range []struct{ kind, id, name, want string }{
		{"kind", "ref", "aggregate_type", "{kind}"}, {"kind", "ref", "aggregate_id", "{ref}"},
		{"kind", "ref", "event_type", "{what}"}, {"kind", "ref", "tenant", "{tenant}"}, {"kind", "ref", "kind", "{kind}"},
		{"", "", "aggregate_type", ""}, {"", "", "aggregate_id", ""},
		{"kind", "{tenant}:{aggregate_id}", "aggregate_id", "{tenant}:{aggregate_id}"},
		{"v1.{event_type}", "ref", "aggregate_type", "v1.{what}"},
	} {
		columns := Columns{ID: "uid", AggregateType: c.kind, AggregateID: c.id, EventType: "what", Payload: "body"}
		var got strings.Builder
		for _, p := range columns.Of(c.name) {
			if got.WriteString(p.Literal); p.Column != "" {
				got.WriteString("{" + p.Column + "}")
			}
		}
		if got.String() != c.want {
			t.Errorf("{%s} with aggregate_type %q and aggregate_id %q: got %s, want %s", c.name, c.kind, c.id, &got, c.want)
		}
	}
}
