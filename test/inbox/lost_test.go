package inbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/prom"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Records are deleted before a consumer has read them, while it is stopped: the log says of which partition and which
// offsets, the counter how many, and the others are handled. The lag is known before the first record. Seen to fail
// with the client's own step to the log's start: nothing was said.
func TestRecordsThatTheTopicLostAreToldOf(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	log, metrics := &harness.Log{}, prom.New()
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Log: newLog(log), Metrics: metrics}
	sendSome(t, addrs, topic, 0, 10)
	_, stop := start(t, newPool(t, pg.URL, 4), config, onOrder)
	until(t, pg, "SELECT count(*) FROM effect", "10")
	stop()
	if strings.Contains(log.String(), "has lost records") {
		t.Errorf("lost records are told of, and there are none:\n%s", log)
	}
	sendSome(t, addrs, topic, 10, 40)
	deleteRecords(t, addrs, topic, 25)
	c, stop := start(t, newPool(t, pg.URL, 4), config, onOrder)
	until(t, pg, "SELECT count(*) FROM effect", "25")
	stop()
	for _, want := range []string{"level=ERROR", "has lost records", "topic=" + topic, "partition=0", "from=10", "to=24"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Of(c))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := 0.0
	for _, f := range families {
		if f.GetName() == "consumer_records_lost_total" {
			got = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if got != 15 {
		t.Errorf("consumer_records_lost_total: got %v, want 15", got)
	}
}

func deleteRecords(t *testing.T, addrs []string, topic string, below int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrDeleteRecordsRequest()
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = below
	of.Partitions = append(of.Partitions, p)
	request.Topics = append(request.Topics, of)
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(fmt.Errorf("delete records: %+v, %w", answer, err))
	}
}
