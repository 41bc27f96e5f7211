package drivers_test

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/drivers"
)

// Breaks it catches: a default that the driver refuses. Seen to fail with an empty nats.url.
func TestDefaultsMakeDrivers(t *testing.T) {
	cfg := config.Default()
	n, err := drivers.NATS(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	r, err := drivers.RedisStream(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	m, err := drivers.RabbitMQ(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	w, err := drivers.Webhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
