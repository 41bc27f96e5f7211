package install_test

import (
	"context"
	"log"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/install"
)

// A program that relays its own outbox creates the tables, the publication and the slot first.
func ExampleCreate() {
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://shop@db/shop"
	if err := install.Create(context.Background(), cfg); err != nil {
		log.Fatal(err)
	}
}
