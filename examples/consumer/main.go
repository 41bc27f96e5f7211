// Command consumer is the smallest program with the package inbox: it counts the orders of each customer, and each
// order once, although a message may come twice. docs/consumers.md explains it.
//
//	cd examples && DATABASE_URL=postgres://app@db/shop BROKERS=kafka:9092 TOPICS=outbox.event.order go run ./consumer
package main

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/prom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	const table = `CREATE TABLE IF NOT EXISTS orders_of_customer (customer text PRIMARY KEY, orders bigint NOT NULL)`
	if _, err := pool.Exec(ctx, table); err != nil {
		return err
	}
	metrics := prom.New()
	config, err := inbox.Config{
		Name:    "order-counter",
		Brokers: strings.Split(os.Getenv("BROKERS"), ","),
		Topics:  strings.Split(os.Getenv("TOPICS"), ","),
		Metrics: metrics,
	}.FromEnvironment()
	if err != nil {
		return err
	}
	c, err := inbox.New(pool, config)
	if err != nil {
		return err
	}
	inbox.On(c, "OrderPlaced", count)
	prometheus.MustRegister(metrics.Of(c))
	go serve(ctx, c)
	return c.Run(ctx)
}

// OrderPlaced is the payload that this consumer needs of it.
type OrderPlaced struct {
	Customer string `json:"customer"`
}

// count is the effect. It is committed together with the event's id, or neither is.
func count(ctx context.Context, tx pgx.Tx, e inbox.Event[OrderPlaced]) error {
	_, err := tx.Exec(ctx, `INSERT INTO orders_of_customer AS o VALUES ($1, 1)
		ON CONFLICT (customer) DO UPDATE SET orders = o.orders + 1`, e.Payload.Customer)
	return err
}

// serve is for probes and Prometheus.
func serve(ctx context.Context, c *inbox.Consumer) {
	answer := func(ask func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := ask(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.Handle("/livez", answer(c.Live))
	mux.Handle("/readyz", answer(c.Ready))
	addr := cmp.Or(os.Getenv("HTTP_LISTEN"), "127.0.0.1:9465")
	server := &http.Server{Addr: addr, Handler: mux} //nolint:gosec // loopback
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Print(err)
	}
}
