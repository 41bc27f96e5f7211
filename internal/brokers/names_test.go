package brokers

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

// Break it catches: a printed rabbitmqctl set_permissions that takes rights away, as it replaces those of the user.
func TestNamesWrittenToCoverEveryTopic(t *testing.T) {
	for _, row := range []struct{ events, copies, want string }{
		{"outbox.event", "", `^outbox\.event$`},
		{"outbox.event.{aggregate_type}", "", `^outbox\.event\..*$`},
		{"{topic}", "", `^.*$`},
		{"outbox.event.{aggregate_type}", "dead", `^(outbox\.event\..*|dead)$`},
		{"a.{aggregate_type}", "{topic}.dlq", `^(a\..*|a\..*\.dlq)$`},
	} {
		var cfg config.Config
		cfg.Message.Topic, cfg.DLQ.Topic = row.events, row.copies
		if got := writtenTo(cfg); got != row.want {
			t.Errorf("%s and %s: got %s, want %s", row.events, row.copies, got, row.want)
		}
	}
}
