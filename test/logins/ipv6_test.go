package logins_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// six opens a port on [::1] that leads to the address, and returns its own.
func six(t *testing.T, target string) string {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no IPv6 here: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(out, in); _ = out.(*net.TCPConn).CloseWrite() }()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}

// Each sink at an address of IPv6, in brackets: check and publishing. Breaks it catches: a host that is put beside its
// port without brackets, or taken apart at its first colon.
func TestEachSinkSpeaksIPv6(t *testing.T) {
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night")
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer endpoint.Close()
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{
		Proxy: func(target string) (string, error) { return six(t, target), nil },
	})
	redis, rabbit, jets := harness.Redis(t), harness.RabbitMQ(t), harness.NATS(t)
	topic := harness.Unique(t, "six")
	kafka.CreateTopic(t, topic, 3, nil)
	connected, err := nats.Connect("nats://" + six(t, jets.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	js, err := connected.JetStream()
	if err == nil {
		_, err = js.AddStream(&nats.StreamConfig{Name: topic, Subjects: []string{topic}})
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial("amqp://guest:guest@" + rabbit.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(topic+"-stream", true, false, false, false, amqp.Table{"x-queue-type": "stream"})
	}
	if err == nil {
		err = ch.ExchangeDeclare(topic, "fanout", true, false, false, false, nil)
	}
	if err == nil {
		_, err = ch.QueueDeclare(topic, true, false, false, false, nil)
	}
	if err == nil {
		err = ch.QueueBind(topic, "", topic, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ lines, topic string }{
		"kafka":    {"sink: kafka\nkafka: {brokers: ['" + kafka.Proxied[0] + "']}", topic},
		"nats":     {"sink: nats\nnats: {url: 'nats://" + six(t, jets.Addr) + "'}", topic},
		"rabbitmq": {"sink: rabbitmq\nrabbitmq: {url: 'amqp://guest:guest@" + six(t, rabbit.Addr) + "/'}", topic},
		"rabbitmq-stream": {"sink: rabbitmq-stream\nrabbitmq: {stream_url: 'rabbitmq-stream://guest:guest@" +
			six(t, rabbit.StreamAddr) + "/'}", topic + "-stream"},
		"redis-stream": {"sink: redis-stream\nredis: {url: 'redis://" + six(t, redis.Addr) + "/0'}", topic},
		"bullmq":       {"sink: bullmq\nredis: {url: 'redis://" + six(t, redis.Addr) + "/0'}", topic + "-jobs"},
		"webhook": {"sink: webhook\nwebhook: {url: 'http://" + six(t, strings.TrimPrefix(endpoint.URL, "http://")) + "/hooks'}",
			topic},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Load(config.Input{File: "relay.yaml", Text: []byte(
				"postgres: {url: 'postgres://relay@[::1]:5432/app'}\nmessage: {topic: " + c.topic + "}\n" + c.lines)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, _, err := brokers.Examine(ctx, cfg, nil); err != nil {
				t.Errorf("check: %v", err)
			}
			d, err := brokers.New(cfg, zerolog.Nop(), nil)
			if err != nil {
				t.Fatal(err)
			}
			sinktest.NewFlow(t, d).Send(sinktest.Events(c.topic, 0, 50))
		})
	}
}
