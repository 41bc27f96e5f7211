package brokers_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A row, a row without a payload, and one that was parked because its topic was missing. Breaks it catches: JSON that a
// consumer cannot tell from other bytes, on a queue or a stream, also when it was stored in between; a tombstone that
// says it is JSON. Seen to fail with the property left out of either driver's messages.
func TestJSONPayloadsSaySo(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	for sink, arguments := range map[string]amqp.Table{
		"rabbitmq": {"x-queue-type": "quorum"}, "rabbitmq-stream": {"x-queue-type": "stream"},
	} {
		t.Run(sink, func(t *testing.T) {
			pg := harness.Postgres(t)
			settings := harness.NewSettings(t, pg, nil).With(forRabbitMQ(server.Addr)...).With("sink", sink,
				"rabbitmq.stream_url", "rabbitmq-stream://guest:guest@"+server.StreamAddr)
			delete(settings, "kafka.brokers")
			delete(settings, "outbox.columns.headers")
			order, invoice := settings.Topic("order"), settings.Topic("invoice")
			create := func(name string) {
				onRabbitMQ(t, server, func(c *amqp.Channel) {
					exchangeOf(t, c, name)
					if _, err := c.QueueDeclare(name, true, false, false, false, arguments); err != nil {
						t.Fatal(err)
					}
					if err := c.QueueBind(name, "#", name, false, nil); err != nil {
						t.Fatal(err)
					}
				})
			}
			create(order)
			relay := harness.StartRelay(t, settings)
			pg.Exec(t, `ALTER TABLE outbox_events ALTER payload DROP NOT NULL;
				INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES
				('order', 'a', 'placed', '{"n": 1}'), ('order', 'a', 'deleted', NULL), ('invoice', 'a', 'sent', '{"n": 2}')`)
			awaitTroubled(t, relay, 1)
			pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES
				('invoice', 'a', 'paid', '{"n": 3}')`)
			awaitParked(t, relay, 1)
			create(invoice)
			awaitPublished(t, pg, 4)
			relay.Stop(t)
			const json = "application/json"
			for topic, want := range map[string][]string{order: {json, ""}, invoice: {json, json}} {
				onRabbitMQ(t, server, func(c *amqp.Channel) {
					if err := c.Qos(10, 0, false); err != nil {
						t.Fatal(err)
					}
					from := amqp.Table{}
					if sink == "rabbitmq-stream" {
						from["x-stream-offset"] = "first"
					}
					deliveries, err := c.ConsumeWithContext(t.Context(), topic, "", false, false, false, false, from)
					if err != nil {
						t.Fatal(err)
					}
					for i, want := range want {
						if d := <-deliveries; d.ContentType != want {
							t.Errorf("%s: message %d, %q, has content type %q, want %q", topic, i, d.Body, d.ContentType, want)
						}
					}
				})
			}
		})
	}
}
