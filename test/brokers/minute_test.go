package brokers_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A backlog of 100,000 rows is published to an exchange in front of two quorum queues, notifications and metrics,
// within a minute of a quiet machine: each message is on the disk twice. At night only, as it measures.
func TestRabbitMQTakes100000MessagesAMinute(t *testing.T) {
	harness.Full(t)
	n := harness.Count(t, "messages of a minute")
	if n == 0 {
		t.Skip("it measures: at night only")
	}
	server := harness.RabbitMQ(t)
	consumers := ofTemplate(t, server, "[1m]")
	settings := consumers.settings.With("rabbitmq.consumers", "{"+consumers.notifications+": {}, "+
		consumers.metrics+": {}}", "message.topic", consumers.exchanges[0])
	delete(settings, "outbox.columns.headers")
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	if code, _, said := relay.Run(t, "init", "--rabbitmq-topology"); code != 0 {
		t.Fatalf("init: exit code %d, %s", code, said)
	}
	conn := consumers.pg.Connect(t)
	for from := 1; from <= n; from += 500 {
		if _, err := conn.Exec(t.Context(), inserted, from, min(from+499, n)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	relay.Start(t)
	awaitPublishedWithin(t, consumers.pg, n, time.Minute)
	took := time.Since(began)
	relay.Stop(t)
	t.Logf("%d messages into two quorum queues in %v: %.0f a minute", n, took, float64(n)/took.Minutes())
}
