package inbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/prom"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Records are deleted before a consumer has read them, while it is stopped: the log names the partition and the
// offsets, the counter how many, and the others are handled. The lag is known before the first record. Seen to fail
// with the client's own step to the log's start: nothing was said.
func TestRecordsThatTheTopicLostAreToldOf(t *testing.T) {
	harness.Full(t)
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
	if got := lostRecords(t, metrics, c); got != 15 {
		t.Errorf("consumer_records_lost_total: got %v, want 15", got)
	}
}

func lostRecords(t *testing.T, metrics *prom.Metrics, c *inbox.Consumer) (lost float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Of(c))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "consumer_records_lost_total" {
			lost = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return lost
}

// ready waits until the consumer is.
func ready(t *testing.T, c *inbox.Consumer) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the consumer is ready", func(context.Context) string {
		return problem(c)
	})
}

func problem(c *inbox.Consumer) string {
	if err := c.Ready(); err != nil {
		return err.Error()
	}
	return ""
}

// troubled waits until the consumer is not ready for a reason that has all the words.
func troubled(t *testing.T, c *inbox.Consumer, words ...string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the consumer says why it is not ready", func(context.Context) string {
		for _, word := range words {
			if got := problem(c); !strings.Contains(got, word) {
				return fmt.Sprintf("got %q, want %q in it", got, word)
			}
		}
		return ""
	})
}

// A consumer that has never read a topic has lost nothing of what the topic deleted before, at its first start and at
// the next one, also of a topic that is empty by then; what is deleted after its first start it has lost, though it has
// never read a record. Seen to fail with a first start at offset 0: the first five were reported as lost.
func TestWhatATopicDeletedBeforeTheFirstStartIsNotLost(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for _, left := range []int{0, 4} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			t.Parallel()
			pg := harness.Postgres(t)
			pg.Exec(t, effects)
			addrs, topic := topicOf(t, 1)
			log, metrics := &harness.Log{}, prom.New()
			config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Log: newLog(log), Metrics: metrics}
			sendSome(t, addrs, topic, 0, 5+left)
			deleteRecords(t, addrs, topic, 5)
			for range 2 {
				c, stop := start(t, newPool(t, pg.URL, 4), config, onOrder)
				ready(t, c)
				until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(left))
				until(t, pg, "SELECT count(*) FROM inbox_offset", "1") // the start, which comes after the first heartbeat
				stop()
				if got := lostRecords(t, metrics, c); got != 0 || strings.Contains(log.String(), "lost records") {
					t.Fatalf("lost: got %v, want 0; the log is\n%s", got, log)
				}
			}
			sendSome(t, addrs, topic, 5+left, 20)
			deleteRecords(t, addrs, topic, 17)
			c, _ := start(t, newPool(t, pg.URL, 4), config, onOrder)
			until(t, pg, "SELECT count(*) FROM effect", fmt.Sprint(left+3))
			if got := lostRecords(t, metrics, c); int(got) != 12-left {
				t.Errorf("lost: got %v, want %d; the log is\n%s", got, 12-left, log)
			}
		})
	}
}

// Records go while their consumer runs and has no room for them: they are reported, and the others are handled. Seen to
// fail with the count left out.
func TestRecordsThatGoWhileTheConsumerRunsAreReported(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	log, metrics, gate := &harness.Log{}, prom.New(), make(chan struct{})
	sendSome(t, addrs, topic, 0, 10)
	c, _ := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Log: newLog(log), Metrics: metrics, MaxEvents: 1,
		IdleTimeout: time.Minute,
	}, gated(gate))
	harness.Eventually(t, time.Minute, "its memory is full", func(context.Context) string {
		if n := c.Status().Events; n < 10 {
			return fmt.Sprint(n)
		}
		return ""
	})
	sendSome(t, addrs, topic, 10, 40)
	deleteRecords(t, addrs, topic, 25)
	close(gate)
	until(t, pg, "SELECT count(*) FROM effect WHERE seq >= 25", "15")
	read, _ := strconv.Atoi(pg.Query(t, "SELECT count(*) FROM effect"))
	if got := lostRecords(t, metrics, c); int(got) != 40-read {
		t.Errorf("lost: got %v, want %d; the log is\n%s", got, 40-read, log)
	}
}

// gated are handlers that wait for the gate, and then have their effects.
func gated(gate <-chan struct{}) func(*inbox.Consumer) {
	return func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			select {
			case <-gate:
				return apply(ctx, tx, e)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
}

// A topic is deleted and created again while its consumer has not read it to the end: the consumer goes on with the new
// one, and reports which records of the former one are missing. Seen to fail with the count left out, and with the new
// topic's id taken for the former one's.
func TestATopicThatIsCreatedAgainIsReported(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	log, metrics, gate := &harness.Log{}, prom.New(), make(chan struct{})
	c, _ := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Log: newLog(log), Metrics: metrics, IdleTimeout: time.Minute,
	}, func(c *inbox.Consumer) {
		later := func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Seq >= 10 && e.Payload.Seq < 20 {
				select {
				case <-gate:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return apply(ctx, tx, e)
		}
		inbox.On(c, "OrderPlaced", later)
	})
	sendSome(t, addrs, topic, 0, 10)
	until(t, pg, "SELECT count(*) FROM effect", "10")
	until(t, pg, "SELECT next_offset FROM inbox_offset", "10")
	sendSome(t, addrs, topic, 10, 20)
	harness.Eventually(t, time.Minute, "it has read them", func(context.Context) string {
		if n := c.Status().Events; n < 10 {
			return fmt.Sprint(n)
		}
		return ""
	})
	again(t, addrs, topic)
	harness.Eventually(t, time.Minute, "it is reported", func(context.Context) string {
		if !strings.Contains(log.String(), "created again") {
			return "not in the log: " + log.String()
		}
		return ""
	})
	close(gate)
	sendSome(t, addrs, topic, 20, 25)
	until(t, pg, "SELECT count(*) FROM effect WHERE seq >= 20", "5")
	read, _ := strconv.Atoi(pg.Query(t, "SELECT count(*) FROM effect WHERE seq < 20"))
	if got := lostRecords(t, metrics, c); int(got) != 20-read {
		t.Errorf("lost: got %v, want %d; the log is\n%s", got, 20-read, log)
	}
	for _, want := range []string{"created again", "topic=" + topic, "partition=0", fmt.Sprintf("from=%d", read)} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	ready(t, c)
}

func again(t *testing.T, addrs []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{topic}
	named := kmsg.NewDeleteTopicsRequestTopic()
	named.Topic = &topic
	remove.Topics = append(remove.Topics, named)
	if answer, err := remove.RequestWith(t.Context(), client); err != nil || answer.Topics[0].ErrorCode != 0 {
		t.Fatal(fmt.Errorf("delete the topic: %+v, %w", answer, err))
	}
	create(t, client, topic)
}

func create(t *testing.T, client *kgo.Client, topic string) {
	t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	of := kmsg.NewCreateTopicsRequestTopic()
	of.Topic, of.NumPartitions, of.ReplicationFactor = topic, 1, 1
	request.Topics = append(request.Topics, of)
	if answer, err := request.RequestWith(t.Context(), client); err != nil || answer.Topics[0].ErrorCode != 0 {
		t.Fatal(fmt.Errorf("create the topic: %+v, %w", answer, err))
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
