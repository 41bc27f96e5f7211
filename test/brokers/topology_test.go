package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// arrives waits for a message in a queue and takes it.
func arrives(t *testing.T, c *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		d, found, err := c.Get(queue, false)
		if err != nil {
			t.Fatal(err)
		}
		if found {
			return d
		}
		if time.Now().After(deadline) {
			t.Fatalf("no message came to %s", queue)
		}
	}
}

// topologyOf is the command for an exchange.
func topologyOf(t *testing.T, server *harness.RabbitServer,
	exchange string) func(args ...string) (code int, out, said string) {
	t.Helper()
	settings := harness.NewSettings(t, harness.Postgres(t), nil).With(forRabbitMQ(server.Addr)...).
		With("message.topic", exchange)
	delete(settings, "kafka.brokers")
	relay := harness.NewRelay(t, settings)
	return func(args ...string) (int, string, string) {
		return relay.Run(t, append([]string{"init", "--rabbitmq-topology"}, args...)...)
	}
}

// Breaks it catches: a dry run that makes something, a second run that fails, a message that does not come to the work
// queue, back from a retry queue, or into the dead-letter queue when it is rejected. Seen to fail with the binding left
// out, and with retry queues that dead-letter to the exchange.
func TestTopologyOfRabbitMQ(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	exchange := harness.Unique(t, "topology")
	run := topologyOf(t, server, exchange)
	names := []string{exchange, exchange + ".dead", exchange + ".retry.1m", exchange + ".retry.5m",
		exchange + ".retry.15m", exchange + ".work"}
	for _, c := range []struct{ args, state string }{
		{"--dry-run", "missing"}, {"--dry-run", "missing"}, {"", "created"}, {"", "exists"}, {"--dry-run", "exists"},
	} {
		code, out, said := run(strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || len(lines) != len(names) {
			t.Fatalf("%s: got exit code %d, %q and %q", c.args, code, out, said)
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, c.state) || !strings.Contains(line, " "+names[i]+",") {
				t.Errorf("%s: got %q, want %s %s", c.args, line, names[i], c.state)
			}
		}
	}
	var parts []struct {
		Name      string
		Arguments map[string]any
	}
	if _, out, _ := run("--json"); json.Unmarshal([]byte(out), &parts) != nil || len(parts) != len(names) ||
		parts[3].Arguments["x-message-ttl"] != 300_000.0 {
		t.Errorf("got %s, want the parts with their arguments", out)
	}
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if err := c.Confirm(false); err != nil {
			t.Fatal(err)
		}
		send := func(to, key, id string) {
			done, err := c.PublishWithDeferredConfirmWithContext(t.Context(), to, key, true, false,
				amqp.Publishing{MessageId: id, Expiration: map[bool]string{true: "50"}[to == ""], Body: []byte(id)})
			if err != nil || !done.Wait() {
				t.Fatalf("publish to %q with the key %s: %v", to, key, err)
			}
		}
		send(exchange, "order.placed", "new")
		d := arrives(t, c, names[5])
		if d.MessageId != "new" {
			t.Errorf("work: got %q", d.MessageId)
		}
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
		if d := arrives(t, c, names[1]); d.MessageId != "new" {
			t.Errorf("dead: got %q", d.MessageId)
		}
		other := harness.Unique(t, "other") // of another consumer, behind the same exchange
		if _, err := c.QueueDeclare(other, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.QueueBind(other, "#", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
		for _, retry := range names[2:5] {
			send("", retry, retry) // it expires sooner than the queue's messages do
			d := arrives(t, c, names[5])
			if d.MessageId != retry {
				t.Errorf("back from %s: got %q", retry, d.MessageId)
			}
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
		if d, found, err := c.Get(other, true); found || err != nil {
			t.Errorf("the other consumer's queue got %q, %v", d.MessageId, err)
		}
	})
}

// Breaks it catches: a queue of other settings that is taken for ours, or a part of the topology made although another
// part cannot be. Seen to fail with the look at what is there left out.
func TestTopologyOfRabbitMQRefusesWhatDiffers(t *testing.T) {
	harness.Full(t)
	server := harness.RabbitMQ(t)
	exchange := harness.Unique(t, "differs")
	run := topologyOf(t, server, exchange)
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if err := c.ExchangeDeclare(exchange, "direct", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		ttl := amqp.Table{"x-queue-type": "quorum", "x-message-ttl": 7, "x-overflow": "reject-publish",
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": exchange + ".work",
			"x-dead-letter-strategy": "at-least-once"}
		if _, err := c.QueueDeclare(exchange+".retry.5m", true, false, false, false, ttl); err != nil {
			t.Fatal(err)
		}
	})
	for _, args := range [][]string{{"--dry-run"}, nil} {
		code, out, said := run(args...)
		if code != 1 || out != "" || !strings.Contains(said, "exchange "+exchange+": inequivalent arg 'type'") ||
			!strings.Contains(said, "inequivalent arg 'x-message-ttl'") || !strings.Contains(said, "nothing was created") {
			t.Errorf("%v: got exit code %d, %q and %q", args, code, out, said)
		}
	}
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if _, err := c.QueueDeclarePassive(exchange+".work", true, false, false, false, nil); err == nil {
			t.Error("the work queue was made")
		}
	})
}

// Rows choose an exchange that does not exist. Breaks it catches: a check that is content, a status that tells of a
// topic with partitions where RabbitMQ has exchanges, or of parked events where there are none yet.
func TestCheckAndStatusNameAMissingExchange(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	server, pg := harness.RabbitMQ(t), harness.Postgres(t)
	prefix := harness.Unique(t, "missing")
	settings := harness.NewSettings(t, pg, nil).With(forRabbitMQ(server.Addr)...).
		With("message.topic", prefix+".{aggregate_type}")
	delete(settings, "kafka.brokers")
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('tickets', 'a', 'sold', '{}')`)
	code, said, _ := relay.Run(t, "check")
	if code != 1 || !strings.Contains(said, "exchange "+prefix+".tickets") ||
		!strings.Contains(said, "init --rabbitmq-topology") {
		t.Errorf("check: got exit code %d and %s; want it to name the exchange and the command", code, said)
	}
	relay.Start(t)
	harness.Eventually(t, 2*time.Minute, "the status names the exchange, in RabbitMQ's own words",
		func(ctx context.Context) string {
			code, status, err := relay.Ask(ctx, "/api/v1/status")
			if strings.Contains(status, "exchange "+prefix+".tickets is unavailable; its events wait") &&
				strings.Contains(status, "NOT_FOUND") && !strings.Contains(status, "partition 0") {
				return ""
			}
			return fmt.Sprint(code, status, err)
		})
}
