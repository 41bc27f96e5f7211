package relay_test

import (
	"context"
	"log"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// A program that relays its own outbox. Run cdc-relay init once before, or call Init. See examples/embed for the whole
// of it, which a test runs against real servers.
func Example() {
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://shop@db/shop"
	driver, err := kafka.New(kafka.Config{Brokers: []string{"kafka:9092"}})
	if err != nil {
		log.Fatal(err)
	}
	r, err := relay.New(cfg, driver, relay.WithSlog(slog.Default()), relay.WithRegisterer(prometheus.DefaultRegisterer))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A program that relays its own outbox creates the tables, the publication and the slot first.
func ExampleInit() {
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://shop@db/shop"
	if err := relay.Init(context.Background(), cfg); err != nil {
		log.Fatal(err)
	}
}
