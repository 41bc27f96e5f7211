package main

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// Breaks when a start does not say what is wrong with brokers or topics, with the repair, or says what is right with
// them.
func TestStartSaysWhatCheckWouldSay(t *testing.T) {
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	for name, c := range map[string]struct {
		topic, broker, timestamp string
		want, not                []string
	}{
		"missing topic": {"nowhere", broker.Addresses()[0], config.TimestampPublish,
			[]string{`"level":"error"`, "topic nowhere", "kafka-topics.sh --create --topic nowhere"}, []string{"idempotent"}},
		"broker away": {"nowhere", "127.0.0.1:1", config.TimestampPublish,
			[]string{`"level":"error"`, "broker 127.0.0.1:1", "check kafka.brokers"},
			[]string{"topic"}},
		"warning": {"outbox.event.order", broker.Addresses()[0], config.TimestampPublish,
			[]string{`"level":"warn"`, "topic outbox.event.order"}, []string{`"level":"error"`, "retention.ms"}},
		"retention": {"outbox.event.order", broker.Addresses()[0], config.TimestampCreatedAt,
			[]string{`"level":"warn"`, "keeps records for 168h0m0s (retention.ms)"}, []string{`"level":"error"`}},
	} {
		cfg := config.Default()
		cfg.Kafka.Brokers, cfg.Message.Topic, cfg.Message.Timestamp = []string{c.broker}, c.topic, c.timestamp
		var log strings.Builder
		lookAhead(t.Context(), cfg, zerolog.New(&log))
		for _, text := range c.want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: the log says %s, want it to say %s", name, log.String(), text)
			}
		}
		for _, text := range c.not {
			if strings.Contains(log.String(), text) {
				t.Errorf("%s: the log says %s, want nothing of %s", name, log.String(), text)
			}
		}
	}
}
