package redis_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/redis"
)

// Streams are trimmed to about a million entries.
func ExampleNewStreams() {
	driver, err := redis.NewStreams(redis.StreamsConfig{
		URL:          "rediss://relay@redis:6379/0",
		PasswordFile: "/etc/relay/password",
		MaxLength:    1_000_000,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
