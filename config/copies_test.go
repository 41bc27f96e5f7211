package config

import "testing"

// Breaks it catches: a configuration with which every event dies, because its topic counts as one for copies. Seen to
// fail with the rule left out, and with a column of message.topic taken for no text.
func TestCopiesHaveTopicsThatEventsCannotHave(t *testing.T) {
	for _, c := range []struct {
		copies, events string
		good           bool
	}{
		{"dead", "events", true}, {"dead", "{aggregate_type}", true}, {"{topic}.dlq", "events", true},
		{"{topic}.dlq", "{aggregate_type}", true}, {"dead", "dead{aggregate_type}", true},
		{"dlq.{topic}", "outbox.event.{aggregate_type}", true},
		{"dead", "dead", false}, {"{topic}.dlq", "events.dlq", false}, {"{topic}.dlq", "{aggregate_type}.dlq", false},
		{"outbox.{event_type}", "outbox.event.{aggregate_type}", false}, {"a{x}b", "a.{y}.c", true},
	} {
		problems := problemsOf(t, Input{Flags: []Setting{{"--set", "dlq.topic", c.copies},
			{"--set", "message.topic", c.events}}})
		if good := len(problems) == 0; good != c.good || !good && problems[0].Key != "dlq.topic" {
			t.Errorf("copies to %s, events to %s: got %v, want good %t", c.copies, c.events, problems, c.good)
		}
	}
}

// Seen to fail with the template's dots taken for any character, and without the ends.
func TestTopicsOfCopiesAreKnownByTheirTemplate(t *testing.T) {
	for _, c := range []struct {
		template, topic string
		want            bool
	}{
		{"", "", false}, {"", "t", false}, {"dead", "dead", true}, {"dead", "deadly", false}, {"dead", "", false},
		{"{topic}.dlq", "a.dlq", true}, {"{topic}.dlq", "a.dlq.b", false}, {"{topic}.dlq", "a-dlq", false},
		{"dlq.{a}.{b}", "dlq.x.y", true}, {"dlq.{a}.{b}", "dlq.x", false}, {"dlq.{a}.{b}", "a.dlq.x.y", false},
		{"a.b", "a-b", false},
	} {
		if got := (DLQ{Topic: c.template}).Matcher()(c.topic); got != c.want {
			t.Errorf("%q of %q: got %t, want %t", c.topic, c.template, got, c.want)
		}
	}
}
