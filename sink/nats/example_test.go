package nats_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/nats"
)

// The stream is found by its subjects.
func ExampleNew() {
	driver, err := nats.New(nats.Config{
		URL:             "nats://nats:4222",
		CredentialsFile: "/etc/relay/relay.creds",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
