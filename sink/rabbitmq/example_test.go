package rabbitmq_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/rabbitmq"
)

// Topics are exchanges; the routing key is made of headers.
func ExampleNew() {
	driver, err := rabbitmq.New(rabbitmq.Config{
		URL:          "amqp://relay@rabbitmq:5672/",
		PasswordFile: "/etc/relay/password",
		RoutingKey:   "{aggregate_type}.{event_type}",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
