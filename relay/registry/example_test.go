package registry_test

import (
	"log"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/registry"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// Values in Avro, by the schemas of a registry.
func ExampleOpen() {
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://shop@db/shop"
	cfg.Message.Format = config.FormatAvro
	cfg.Registry.URL = "http://registry:8081"
	schemas, err := registry.Open(cfg, zerolog.Nop())
	if err != nil {
		log.Fatal(err)
	}
	driver, err := kafka.New(kafka.Config{Brokers: []string{"kafka:9092"}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := relay.New(cfg, driver, relay.WithRegistry(schemas)); err != nil {
		log.Fatal(err)
	}
}
