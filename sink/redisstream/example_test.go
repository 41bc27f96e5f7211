package redisstream_test

import (
	"log"

	"github.com/cdc-relay/cdc-relay/sink/redisstream"
)

// Streams are trimmed to about a million entries.
func ExampleNew() {
	driver, err := redisstream.New(redisstream.Config{
		URL:          "rediss://relay@redis:6379/0",
		PasswordFile: "/etc/relay/password",
		MaxLength:    1_000_000,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
}
