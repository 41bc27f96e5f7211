package brokers_test

import (
	"maps"
	"net"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// debeziumBeside is Debezium Server. It marks no rows.
type debeziumBeside struct {
	t testing.TB
	*harness.DebeziumServer
}

func (d debeziumBeside) start() { d.Start(d.t) }

// awaitQuiet waits until nothing more comes: Debezium marks no rows, and the position that it notes is no event's.
func awaitQuiet(topic target) {
	const quiet = 45 * time.Second // it starts in some 5 s, and asks again for a slot that is still taken after 10 s
	last, since := topic.count(), time.Now()
	looks := time.NewTicker(100 * time.Millisecond)
	defer looks.Stop()
	for time.Since(since) < quiet {
		<-looks.C
		if n := topic.count(); n != last {
			last, since = n, time.Now()
		}
	}
}

// newDebezium is Debezium Server with the relay's slot and publication, as make bench-debezium tunes Debezium: what it
// sends is an event's payload as it is, and its position is noted each second instead of each minute.
func newDebezium(t *testing.T, sink, addr string, pg *harness.PG, settings harness.Settings) debeziumBeside {
	t.Helper()
	topic := settings.Topic("order")
	source := harness.OutboxRouter(t, pg.URL, settings.Slot(), settings["postgres.publication"].(string), topic)
	maps.Copy(source, map[string]string{"poll.interval.ms": "2", "max.batch.size": "4096", "max.queue.size": "16384",
		"extended.headers.enabled": "false", "skipped.operations": "u,d,t", "offset.flush.interval.ms": "1000"})
	all := map[string]string{"debezium.format.key": "simplestring", "debezium.format.value": "simplestring"}
	maps.Copy(all, debeziumSink(t, sink, addr, topic))
	return debeziumBeside{t, harness.NewDebeziumServer(t, source, all)}
}

// debeziumSink is the configuration of a sink of Debezium Server's, nil if it has none for that broker.
func debeziumSink(t *testing.T, sink, addr, topic string) map[string]string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string, settings ...string) map[string]string {
		all := map[string]string{"debezium.sink.type": name}
		for i := 0; i < len(settings); i += 2 {
			all["debezium.sink."+name+"."+settings[i]] = settings[i+1]
		}
		return all
	}
	switch sink {
	case "nats":
		return named("nats-jetstream", "url", "nats://"+addr)
	case "redis-stream":
		return named("redis", "address", addr, "message.format", "extended")
	case "rabbitmq":
		return named("rabbitmq", "connection.host", host, "connection.port", port, "connection.username", "guest",
			"connection.password", "guest", "exchange", topic, "routingKey", topic)
	case "rabbitmq-stream":
		return named("rabbitmqstream", "connection.host", host, "connection.port", port, "connection.username", "guest",
			"connection.password", "guest", "stream", topic)
	case "webhook":
		return named("http", "url", "http://"+addr+"/hooks/"+topic)
	}
	return nil
}
