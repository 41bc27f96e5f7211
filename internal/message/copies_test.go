package message

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: a copy in another topic than the template says; one sent where Kafka takes none; one of an event
// without a topic in a topic made of nothing. Seen to fail with {topic} taken for a column, with no topic taken for an
// empty one, and with illegal names let pass.
func TestCopiesGoWhereTheirTemplateSays(t *testing.T) {
	for _, c := range []struct{ template, kind, topic, want string }{
		{"dead", "order", "outbox.event.order", "dead"},
		{"{topic}.dlq", "order", "outbox.event.order", "outbox.event.order.dlq"},
		{"dlq.{event_type}.{tenant}", "order", "outbox.event.order", "dlq.made.acme"},
		{"dlq.{aggregate_type}", "two words", "", ""},
		{"{topic}.dlq", "two words", "", ""},
		{"dead", "two words", "", "dead"},
		{"{topic}.dlq", "order", strings.Repeat("x", 246), ""},
	} {
		r := newRouted(t, func(conf *config.Config) { conf.DLQ.Topic = c.template })
		d := &carried{event: anEvent()}
		d.event.AggregateType = text(c.kind)
		if strings.Contains(c.template, "{tenant}") {
			d.event.Extra = [][]byte{text("acme")}
		}
		d.record.Topic = c.topic
		var copied sink.Record
		reason := r.Copy(Dead{Event: &d.event, Record: &d.record, Reason: &sink.Reason{}}, &copied)
		if copied.Topic != c.want || (reason == nil) != (c.want != "") {
			t.Errorf("%s of an event of %q: got %q, reason %v; want %q", c.template, c.kind, copied.Topic, reason, c.want)
		}
	}
}

// Breaks it catches: a payload that does not fit and goes out, or dies of something else. Seen to fail with the hook
// not asked.
func TestPayloadsThatDoNotFitCannotBeMessages(t *testing.T) {
	for _, why := range []string{"", "at /n rule minimum"} {
		r := newRouted(t, nil)
		r.hooks.Misfit = func(eventType, payload []byte) string {
			if string(eventType) != "made" || string(payload) != `{"n": 1}` {
				t.Errorf("asked about %s %s", eventType, payload)
			}
			return why
		}
		reason := r.route(&carried{event: anEvent()})
		if why == "" && reason != nil || why != "" && (reason == nil || reason.Code != "INVALID_PAYLOAD" ||
			reason.Class != outbox.Permanent || reason.Text != why) {
			t.Errorf("misfit %q: got reason %v", why, reason)
		}
	}
}

// Breaks it catches: an event among the copies, which their reader takes for a dead letter. Seen to fail with the
// template compared as it stands.
func TestEventsCannotChooseTopicsOfCopies(t *testing.T) {
	r := newRouted(t, func(c *config.Config) { c.DLQ.Topic = "{topic}.dlq" })
	for kind, legal := range map[string]bool{"order": true, "order.dlq": false, ".dlq": false, "order.dlq.v2": true} {
		d := &carried{event: anEvent()}
		d.event.AggregateType = text(kind)
		if reason := r.route(d); (reason == nil) != legal || !legal && reason.Code != "INVALID_TOPIC" {
			t.Errorf("an event of %s: got reason %v, want taken %t", kind, reason, legal)
		}
	}
}

// Break it catches: NULL in a column of message.topic, or dlq.topic, that makes a topic of another name.
func TestNullChoosesNoTopic(t *testing.T) {
	r := newRouted(t, func(c *config.Config) {
		c.Message.Topic, c.DLQ.Topic = "shop2.{event_type}.{tenant}", "dead.{tenant}"
	})
	event := anEvent()
	for _, row := range []struct {
		tenant []byte
		topic  string
	}{{text("a"), "shop2.made.a"}, {nil, ""}, {text(""), "shop2.made."}, {nil, ""}, {text("a"), "shop2.made.a"}} {
		event.Extra = [][]byte{row.tenant}
		d := &carried{event: event}
		reason := r.route(d)
		if got := d.record.Topic; got != row.topic || (reason == nil) != (row.tenant != nil) {
			t.Errorf("tenant %q: got topic %q, reason %v; want %q, and a reason for NULL alone", row.tenant, got, reason,
				row.topic)
		}
		if reason != nil && (reason.Code != "INVALID_TOPIC" ||
			!strings.Contains(reason.Text, "column tenant, which is NULL")) {
			t.Errorf("tenant NULL: got %s %q, want the column named", reason.Code, reason.Text)
		}
		if _, reason := r.copyTopic(Dead{Event: &d.event, Record: &d.record}); (reason == nil) != (row.tenant != nil) {
			t.Errorf("copy of tenant %q: got reason %v, want one for NULL alone", row.tenant, reason)
		}
	}
}
