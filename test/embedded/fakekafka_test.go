package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// Breaks it catches: topics not seeded or with another number of partitions, an address that no one can connect to,
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

// Breaks it catches: messages before the call left out, a header or the order lost, an end of ctx taken for a failure.
func TestFakeKafkaConsumesFromTheStart(t *testing.T) {
	k, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: map[string]int32{"orders": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addresses()...), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	headers := []kgo.RecordHeader{{Key: "id", Value: []byte("not this")}, {Key: "id", Value: []byte("7")}}
	for _, value := range []string{"first", "second"} {
		if err := client.ProduceSync(t.Context(),
			&kgo.Record{Key: []byte("k"), Value: []byte(value), Headers: headers}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	err = k.Consume(ctx, []string{"orders"}, func(m embedded.Message) {
		got = append(got, string(m.Key)+" "+string(m.Value)+" "+string(m.Header("id")))
		if len(got) == 2 {
			cancel()
		}
	})
	if err != nil {
		t.Errorf("Consume: got %v, want nil after its context ended", err)
	}
	if diff := cmp.Diff([]string{"k first 7", "k second 7"}, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}
