package brokers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
)

// Breaks when the configuration allows a codec that the driver does not know, or when the driver gets another one. Seen
// to fail with the codec not handed on.
func TestEveryAllowedCompressionReachesTheDriver(t *testing.T) {
	keys := config.Keys()
	at := slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "kafka.compression" })
	names := strings.Split(keys[at].Allowed, ", ")
	if len(names) != 5 {
		t.Fatalf("allowed: got %v, want five codecs", names)
	}
	for _, name := range names {
		cfg := config.Default()
		cfg.Kafka.Compression = name
		if got := brokers.Kafka(cfg).Compression.String(); got != name {
			t.Errorf("codec of the driver: got %s, want %s", got, name)
		}
	}
}
