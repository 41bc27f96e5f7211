// Command embed is an example of a Go program that relays its own outbox: it creates what the relay needs in its
// database, and runs the relay beside its own work. The program's logger and its Prometheus registry are the relay's,
// too.
//
//	DATABASE_URL=postgres://shop@db/shop BROKERS=kafka:9092 go run ./examples/embed
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg := config.Default()
	cfg.Postgres.URL = os.Getenv("DATABASE_URL")
	driver, err := kafka.New(kafka.Config{Brokers: strings.Split(os.Getenv("BROKERS"), ",")})
	if err != nil {
		log.Fatal(err)
	}
	if err := Relay(ctx, cfg, driver, slog.Default(), prometheus.DefaultRegisterer); err != nil {
		log.Fatal(err)
	}
}

// Relay relays until the context ends.
func Relay(ctx context.Context, cfg config.Config, driver sink.Driver, log *slog.Logger,
	metrics prometheus.Registerer) error {
	if err := relay.Init(ctx, cfg); err != nil {
		return fmt.Errorf("create what the relay needs: %w", err)
	}
	r, err := relay.New(cfg, driver, relay.WithSlog(log), relay.WithRegisterer(metrics))
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
