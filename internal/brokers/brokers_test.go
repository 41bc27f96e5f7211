package brokers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
)

// Breaks it catches: a default that the driver refuses. Seen to fail with an empty nats.url.
func TestDefaultsMakeDrivers(t *testing.T) {
	cfg := config.Default()
	t.Setenv("AWS_REGION", "eu-west-1") // which has no default
	for _, kind := range []string{config.SinkNATS, config.SinkRedisStream, config.SinkBullMQ, config.SinkRabbitMQ,
		config.SinkRabbitMQStream, config.SinkWebhook, config.SinkSQS, config.SinkSNS, config.SinkEventBridge,
		config.SinkStdout} {
		cfg.Sink = kind
		driver, err := brokers.New(cfg, zerolog.Nop(), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if err := driver.Close(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Breaks it catches: a check that does not ask the endpoints, or that asks for another topic than the only one. Seen to
// fail with the sink left out, with no topic, and with what is risky called good.
func TestExamineAsksTheEndpoints(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { asked = q.URL.Path }))
	defer server.Close()
	cfg := config.Default()
	cfg.Sink, cfg.Webhook.URL, cfg.Message.Topic = config.SinkWebhook, server.URL+"/in", "orders"
	text, risky, err := brokers.Examine(t.Context(), cfg, nil)
	if err != nil || !strings.Contains(text, "answers (200 to HEAD)") || asked != "/in/orders" || !risky {
		t.Errorf("got %q, risky %t, %v, path %q; want an answer of /in/orders, risky as nothing is signed", text, risky, err,
			asked)
	}
}
