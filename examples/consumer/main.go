// Command consumer is an example of the other end: it reads the topics of a relay and handles each event once, although a
// message may come twice. It counts events per key, in its own database, and notes the ids of what it has counted in the
// same transaction. docs/consumers.md explains it.
//
//	DATABASE_URL=postgres://app@db/shop BROKERS=kafka:9092 TOPICS=outbox.event.order GROUP=shop go run ./examples/consumer
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c := Config{
		DatabaseURL: os.Getenv("DATABASE_URL"),
		Brokers:     strings.Split(os.Getenv("BROKERS"), ","),
		Topics:      strings.Split(os.Getenv("TOPICS"), ","),
		Group:       os.Getenv("GROUP"),
	}
	if err := Consume(ctx, c); err != nil {
		log.Fatal(err)
	}
}
