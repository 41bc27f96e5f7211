package kafka_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// A cluster with TLS and a password that is read again at each connect.
func ExampleNew() {
	driver, err := kafka.New(kafka.Config{
		Brokers: []string{"kafka-1:9093", "kafka-2:9093"},
		TLS:     &kafka.TLS{CAFile: "/etc/relay/ca.pem"},
		SASL: &kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: "relay",
			PasswordFile: "/etc/relay/kafka-password"},
		Compression: kafka.Zstd,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
