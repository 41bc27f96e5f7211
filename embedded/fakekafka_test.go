package embedded_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/embedded"
)

// Breaks it catches: topics not seeded or with another number of partitions, an address that nobody can connect to,
// a DataDir that is not used.
func TestFakeKafkaHasItsTopicsAndKeepsThem(t *testing.T) {
	dir := t.TempDir()
	config := embedded.FakeKafkaConfig{Topics: map[string]int32{"orders": 3, "users": 1}, DataDir: dir}
	for _, life := range []string{"first", "second"} {
		k, err := embedded.StartFakeKafka(config)
		if err != nil {
			t.Fatalf("%s start: %v", life, err)
		}
		config.Port, config.Topics = k.Port(), nil // the second life knows them from its directory
		client, err := kgo.NewClient(kgo.SeedBrokers(k.Addresses()...))
		if err != nil {
			t.Fatal(err)
		}
		topics, err := kadm.NewClient(client).ListTopics(t.Context())
		if err != nil {
			t.Fatalf("%s life: list topics: %v", life, err)
		}
		for topic, want := range map[string]int{"orders": 3, "users": 1} {
			if got := len(topics[topic].Partitions); got != want {
				t.Errorf("%s life: partitions of %s: got %d, want %d", life, topic, got, want)
			}
		}
		client.Close()
		k.Close()
	}
	if _, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"t": 0}}); err == nil {
		t.Error("topic without partitions: got no error")
	}
}
