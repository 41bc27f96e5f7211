package webhook_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/webhook"
)

// Each topic is a path below the URL; requests are signed.
func ExampleNew() {
	driver, err := webhook.New(webhook.Config{
		URL:        "https://hooks.example.com/events",
		SecretFile: "/etc/relay/webhook-secret",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
