package config_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/config"
)

// The environment beats the file. Every problem is reported, with the key that was meant.
func ExampleLoad() {
	cfg, err := config.Load(config.Input{
		File:    "relay.yaml",
		Text:    []byte("postgres: {url: 'postgres://app@db/shop', slot: orders}\nkafka: {brokers: ['kafka:9092']}\n"),
		Environ: []string{"CDC_RELAY_POSTGRES_SLOT=payments"},
	})
	fmt.Println(cfg.Postgres.Slot, cfg.Message.Topic, err)

	_, err = config.Load(config.Input{File: "relay.yaml", Text: []byte("kafka: {broker: ['kafka:9092']}\n")})
	fmt.Println(err)
	// Output:
	// payments outbox.event.{aggregate_type} <nil>
	// the configuration has a problem:
	//   kafka.broker (relay.yaml:1): unknown key; the nearest known key is kafka.brokers
}
