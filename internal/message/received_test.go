package message

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// A row spells a name of the relay's in another way, which the sink's receivers do not tell from it. Breaks it catches:
// an id, a source or a type that a row chooses, or a second value beside the relay's; a name dropped that receivers do
// tell apart. Seen to fail with names compared as they are, for NATS or webhooks alone as well, with "-" and "_" told
// apart for webhooks, and with all receivers taken for web servers.
func TestRowsCannotSetWhatReceiversTakeForTheRelays(t *testing.T) {
	for name, c := range map[string]struct {
		sink string
		kept []string // of the spellings
	}{
		"kafka": {config.SinkKafka, []string{"ID", "Event_Type", "event-type", "x-event-id", "x_outbox_source"}},
		"nats":  {config.SinkNATS, []string{"event-type", "x-event-id", "x_outbox_source"}},
		"redis-stream": {config.SinkRedisStream, []string{"ID", "Event_Type", "event-type", "x-event-id",
			"x_outbox_source"}},
		"rabbitmq":        {config.SinkRabbitMQ, []string{"ID", "Event_Type", "event-type", "x_outbox_source"}},
		"rabbitmq-stream": {config.SinkRabbitMQStream, []string{"ID", "Event_Type", "event-type", "x_outbox_source"}},
		"webhook":         {config.SinkWebhook, []string{"x-event-id"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouted(t, func(conf *config.Config) { conf.Sink = c.sink })
			var rec sink.Record
			e := outbox.Event{ID: []byte("7"), AggregateType: []byte("order"), AggregateID: []byte("a"),
				EventType: []byte("made"), Payload: []byte("{}"), Headers: []byte(
					`{"ID": "1", "Event_Type": "2", "event-type": "3", "x-event-id": "4", "x_outbox_source": "5", "X-Outbox-Source": "6"}`)}
			if _, _, reason := r.Encode(&e, &rec, Marks{}); reason != nil {
				t.Fatal(reason)
			}
			var kept []string
			for name, value := range rec.Headers.All() {
				if len(value) == 1 && value[0] < '7' && name != "x-outbox-epoch" {
					kept = append(kept, name)
				}
			}
			slices.Sort(kept)
			slices.Sort(c.kept)
			if got, want := fmt.Sprint(kept), fmt.Sprint(c.kept); got != want {
				t.Errorf("headers of the row: got %s, want %s", got, want)
			}
		})
	}
}

// Breaks it catches: an event that waits for a subject that there can never be, a topic of Kafka that NATS's rule
// refuses. Seen to fail with the subjects' rule left out, and with it applied to Kafka too.
func TestTopicsThatAreNoSubjectsAreRefused(t *testing.T) {
	for kind, refused := range map[string]bool{".dot": true, "dot.": true, "two..dots": true, "a.b": false} {
		for _, name := range []string{config.SinkNATS, config.SinkKafka} {
			r := newRouted(t, func(c *config.Config) { c.Sink, c.Message.Topic = name, "t.{aggregate_type}" })
			var rec sink.Record
			e := outbox.Event{ID: []byte("7"), AggregateType: []byte(kind), AggregateID: []byte("a"), Payload: []byte("{}")}
			_, _, reason := r.Encode(&e, &rec, Marks{})
			if got, want := reason != nil && reason.Code == "INVALID_TOPIC", refused && name == config.SinkNATS; got != want {
				t.Errorf("%s to %s: got %v, want it refused: %v", kind, name, reason, want)
			}
		}
	}
}
