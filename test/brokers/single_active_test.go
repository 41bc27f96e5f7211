package brokers_test

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A queue that init creates is delivered to one consumer at a time if its consumer is to have that. Breaks it catches:
// a consumer that freezes, and goes on behind another one with what it has. Seen to fail without the argument.
func TestTopologyDeliversToOneConsumerAtATime(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	one := harness.Unique(t, "single")
	for _, c := range []struct {
		queue, consumers string
		want             string // what a second consumer begins with
	}{
		{one + ".work", "{}", "b"}, {one + ".many", "{" + one + ".many: {}}", "b"},
		{one + ".own", "{" + one + ".own: {single_active: true}}", "a"},
	} {
		relay := relayOf(t, server, "message.topic", one, "rabbitmq.consumers", c.consumers)
		if code, _, said := relay.Run(t, "init", "--rabbitmq-topology"); code != 0 {
			t.Fatalf("init: exit code %d, %s", code, said)
		}
		onRabbitMQ(t, server, func(first *amqp.Channel) {
			if err := first.Qos(1, 0, false); err != nil {
				t.Fatal(err)
			}
			deliveries, err := first.Consume(c.queue, "", false, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			onRabbitMQ(t, server, func(second *amqp.Channel) {
				others, err := second.Consume(c.queue, "", false, false, false, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				send(t, second, c.queue, "a", "b")
				if d := <-deliveries; d.MessageId != "a" {
					t.Errorf("%s: the first consumer got %q, want a", c.queue, d.MessageId)
				}
				if c.want == "a" {
					if err := first.Close(); err != nil { // a goes back
						t.Fatal(err)
					}
				}
				if d := <-others; d.MessageId != c.want {
					t.Errorf("%s: the second consumer began with %q, want %q", c.queue, d.MessageId, c.want)
				}
			})
		})
	}
}

func relayOf(t *testing.T, server *harness.RabbitServer, settings ...any) *harness.Relay {
	t.Helper()
	all := harness.NewSettings(t, harness.Postgres(t), nil).With(forRabbitMQ(server.Addr)...).With(settings...)
	delete(all, "kafka.brokers")
	return harness.NewRelay(t, all)
}

// send publishes messages, and waits until the queue has them.
func send(t *testing.T, c *amqp.Channel, queue string, ids ...string) {
	t.Helper()
	if err := c.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		done, err := c.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false,
			amqp.Publishing{MessageId: id})
		if err != nil || !done.Wait() {
			t.Fatalf("publish to %s: %v", queue, err)
		}
	}
}

// A queue that an earlier init created, or a person, does not have the argument, and cannot get it. Breaks it catches:
// an init that fails since the upgrade, or is silent; a check that is silent, or fails for a user with the relay's own
// rights. Seen to fail with the second declaration left out, and with the look at the queues left out.
func TestAQueueWithoutASingleActiveConsumerIsAWarning(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	one := harness.Unique(t, "older")
	for _, c := range []struct{ queue, dead, consumers string }{
		{one + ".own", one + ".own.dlq", "{" + one + ".own: {retry: [], single_active: true}}"},
	} {
		onRabbitMQ(t, server, func(channel *amqp.Channel) {
			if _, err := channel.QueueDeclare(c.queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum",
				"x-overflow": "reject-publish", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": c.dead,
				"x-dead-letter-strategy": "at-least-once"}); err != nil {
				t.Fatal(err)
			}
		})
		relay := relayOf(t, server, "message.topic", one, "rabbitmq.consumers", c.consumers)
		relay.Init(t)
		want := fmt.Sprintf("queue %s has no x-single-active-consumer", c.queue)
		for range 2 {
			code, out, said := relay.Run(t, "init", "--rabbitmq-topology")
			if code != 0 || !strings.Contains(out, "exists   queue    "+c.queue+",") || !strings.Contains(said, want) {
				t.Errorf("init: got exit code %d, %s, %s; want that it exists and the warning", code, out, said)
			}
		}
		const fix = "delete_queue "
		if code, out, said := relay.Run(t, "check"); code != 0 || !strings.Contains(out, want) ||
			!strings.Contains(out, fix) {
			t.Errorf("check: got exit code %d, %s%s; want the warning with its fix", code, out, said)
		}
		least := relayOf(t, server, "message.topic", one, "rabbitmq.consumers", c.consumers,
			"rabbitmq.url", leastUser(t, server))
		least.Init(t)
		if code, out, said := least.Run(t, "check"); code != 0 || strings.Contains(out, want) {
			t.Errorf("check as a user who may not compare: got exit code %d, %s%s", code, out, said)
		}
		onRabbitMQ(t, server, func(channel *amqp.Channel) {
			if _, err := channel.QueueDelete(c.queue, false, false, false); err != nil {
				t.Fatal(err)
			}
		})
		if code, _, said := relay.Run(t, "init", "--rabbitmq-topology"); code != 0 || strings.Contains(said, want) {
			t.Errorf("init behind the fix: got exit code %d, %s", code, said)
		}
		if _, out, _ := relay.Run(t, "check"); strings.Contains(out, want) {
			t.Errorf("check behind the fix: got %s", out)
		}
	}
}
