package brokers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// named are two consumers of exchanges, by unique names.
type named struct {
	notifications, metrics string
	exchanges              [2]string
	settings               harness.Settings
}

// ofTemplate are the consumers of two exchanges that rows choose: one of both, with some of the keys, and one of the
// first with everything. They wait for so long between attempts, as a list of the configuration.
func ofTemplate(t *testing.T, server *harness.RabbitServer, retry string) named {
	t.Helper()
	one := harness.Unique(t, "x")
	n := named{notifications: one + ".notifications", metrics: one + ".metrics",
		exchanges: [2]string{one + ".ticket", one + ".invoice"}}
	n.settings = harness.NewSettings(t, harness.Postgres(t), nil).With(forRabbitMQ(server.Addr)...).
		With("message.topic", one+".{aggregate_type}", "rabbitmq.consumers", fmt.Sprintf(
			`{%s: {bind: ["ticket.*", "*.paid"], retry: %s, exchanges: [%s, %s]}, %s: {exchanges: [%s], retry: []}}`,
			n.notifications, retry, n.exchanges[0], n.exchanges[1], n.metrics, n.exchanges[0]))
	delete(n.settings, "kafka.brokers")
	return n
}

func (n named) names(retries ...string) []string {
	names := []string{n.exchanges[0], n.exchanges[1]}
	if n.metrics < n.notifications {
		names = append(names, n.metrics+".dlq", n.metrics, n.notifications+".dlq")
	}
	for _, pause := range retries {
		names = append(names, n.notifications+".retry."+pause)
	}
	return append(names, n.notifications)
}

// Breaks it catches: a consumer that gets what it is not bound with, or not what it is; a dry run that creates
// something; a second run that fails; a rejected or retried message that goes to another consumer. Seen to fail with
// the bindings to the first exchange only, and with one dead-letter queue for all.
func TestTopologyOfNamedConsumers(t *testing.T) {
	server := harness.RabbitMQ(t)
	n := ofTemplate(t, server, "[1m, 90s, 1m]")
	relay := harness.NewRelay(t, n.settings)
	names := n.names("1m", "90s")
	for _, c := range []struct{ args, state string }{
		{"--dry-run", "missing"}, {"", "created"}, {"", "exists"}, {"--dry-run", "exists"},
	} {
		code, out, said := relay.Run(t, append([]string{"init", "--rabbitmq-topology"}, strings.Fields(c.args)...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || len(lines) != len(names) {
			t.Fatalf("%s: got exit code %d, %q and %q; want lines for %v", c.args, code, out, said, names)
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, c.state) || !strings.Contains(line, " "+names[i]+",") {
				t.Errorf("%s: got %q, want %s %s", c.args, line, names[i], c.state)
			}
		}
	}
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if err := c.Confirm(false); err != nil {
			t.Fatal(err)
		}
		sent := []string{"ticket.opened", "order.paid", "order.placed"}
		for _, exchange := range n.exchanges {
			for _, key := range sent {
				done, err := c.PublishWithDeferredConfirmWithContext(t.Context(), exchange, key, false, false,
					amqp.Publishing{MessageId: key, Body: []byte(exchange)})
				if err != nil || !done.Wait() {
					t.Fatalf("publish %s to %s: %v", key, exchange, err)
				}
			}
		}
		got := func(queue string, n int) (keys []string) {
			for range n {
				d := arrives(t, c, queue)
				keys = append(keys, d.MessageId)
				if err := d.Reject(false); err != nil {
					t.Fatal(err)
				}
			}
			if d, more, err := c.Get(queue, true); more || err != nil {
				t.Errorf("%s: got %s and %v besides", queue, d.MessageId, err)
			}
			return keys
		}
		for _, q := range []string{n.notifications, n.notifications + ".dlq"} { // rejected: they go to the dead letters
			if keys, want := got(q, 4), []string{sent[0], sent[1], sent[0], sent[1]}; !slices.Equal(keys, want) {
				t.Errorf("%s: got %v, want %v", q, keys, want)
			}
		}
		for _, q := range []string{n.metrics, n.metrics + ".dlq"} {
			if keys := got(q, 3); !slices.Equal(keys, sent) {
				t.Errorf("%s: got %v, want %v", q, keys, sent)
			}
		}
		retry := n.notifications + ".retry.90s"
		done, err := c.PublishWithDeferredConfirmWithContext(t.Context(), "", retry, true, false,
			amqp.Publishing{MessageId: "again", Expiration: "50"})
		if err != nil || !done.Wait() {
			t.Fatalf("publish to %s: %v", retry, err)
		}
		got(n.notifications, 1)
		got(n.metrics, 0)
	})
}

// Breaks it catches: consumers of which some are made although something is there that differs, and a difference that
// is not named. Seen to fail with the look at the retry queues left out.
func TestTopologyOfNamedConsumersRefusesWhatDiffers(t *testing.T) {
	server := harness.RabbitMQ(t)
	n := ofTemplate(t, server, "[1m]")
	relay := harness.NewRelay(t, n.settings)
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if _, err := c.QueueDeclare(n.notifications, true, false, false, false, nil); err != nil { // classic
			t.Fatal(err)
		}
		if _, err := c.QueueDeclare(n.notifications+".retry.1m", true, false, false, false,
			amqp.Table{"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-exchange": "",
				"x-dead-letter-routing-key": n.metrics, "x-dead-letter-strategy": "at-least-once",
				"x-message-ttl": 60_000}); err != nil {
			t.Fatal(err)
		}
	})
	for _, args := range [][]string{{"--dry-run"}, nil} {
		code, out, said := relay.Run(t, append([]string{"init", "--rabbitmq-topology"}, args...)...)
		if code != 1 || out != "" || !strings.Contains(said, "queue "+n.notifications+": inequivalent arg") ||
			!strings.Contains(said, "queue "+n.notifications+".retry.1m: inequivalent arg 'x-dead-letter-routing-key'") {
			t.Errorf("%v: got exit code %d, %q and %q", args, code, out, said)
		}
	}
	for _, name := range []string{n.metrics, n.metrics + ".dlq", n.notifications + ".dlq"} {
		onRabbitMQ(t, server, func(c *amqp.Channel) {
			if _, err := c.QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
				t.Errorf("%s was created", name)
			}
		})
	}
}

// Breaks it catches: a check that calls the broker right when a queue or an exchange that the configuration names is
// not there, that needs more rights than the relay, or that creates what it looks for. Seen to fail with the look at
// the queues left out, and with the look at the exchange left out.
func TestCheckLooksForTheConsumersQueues(t *testing.T) {
	server := harness.RabbitMQ(t)
	n := ofTemplate(t, server, "[1m]")
	user := harness.Unique(t, "relay")
	server.Ctl(t, "add_user", user, "secret")
	server.Ctl(t, "set_permissions", "--vhost", "/", user, "", ".*", "") // what the relay itself needs
	least := harness.NewRelay(t, n.settings.With("rabbitmq.url", "amqp://"+user+":secret@"+server.Addr))
	owner := harness.NewRelay(t, n.settings)
	line := func(want ...string) {
		t.Helper()
		_, out, said := least.Run(t, "check")
		found := ""
		for text := range strings.SplitSeq(out, "\n") {
			if strings.Contains(text, "sink rabbitmq") {
				found = text
			}
		}
		at := strings.Index(out, "sink rabbitmq")
		for _, w := range want {
			if at < 0 || !strings.Contains(out[at:], w) {
				t.Errorf("check: got %q, want %q in %s%s", found, w, out, said)
			}
		}
	}
	line("missing at the server", "exchange "+n.exchanges[1], "queue "+n.metrics+",",
		"queue "+n.notifications+".retry.1m", "init --rabbitmq-topology")
	if code, _, said := owner.Run(t, "init", "--rabbitmq-topology"); code != 0 {
		t.Fatalf("init: exit code %d, %s", code, said)
	}
	line("RabbitMQ", "exchanges and queues of 2 consumers")
	onRabbitMQ(t, server, func(c *amqp.Channel) {
		if _, err := c.QueueDelete(n.notifications+".dlq", false, false, false); err != nil {
			t.Fatal(err)
		}
	})
	line("missing at the server: queue "+n.notifications+".dlq", "init --rabbitmq-topology")
	alone := harness.NewRelay(t, n.settings.With("rabbitmq.consumers", "{}", "message.topic", n.metrics+".none"))
	if code, out, _ := alone.Run(t, "check"); code != 1 || !strings.Contains(out, "exchange "+n.metrics+".none") {
		t.Errorf("check with a missing exchange: got exit code %d, %s", code, out)
	}
}
