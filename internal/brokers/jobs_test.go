package brokers

import (
	"reflect"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink/redis"
)

// Breaks it catches: a message key of one's own that workers take for the aggregate's id; the data of a job that wraps
// what a format has made already; headers that were renamed and are not found. Seen to fail with the key always called
// aggregate_id, with the format not looked at, and with the headers' own names.
func TestDataOfJobsNamesWhatTheMessageHas(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*config.Config)
		want *redis.JobEvent
	}{
		{"by default", func(*config.Config) {},
			&redis.JobEvent{ID: "id", EventType: "event_type", AggregateType: "aggregate_type", CreatedAt: "created_at",
				Key: "aggregate_id"}},
		{"key and headers of one's own", func(c *config.Config) {
			c.Message.Key = "{customer}"
			c.Message.Headers = map[string]string{"id": "x-event-id"}
		}, &redis.JobEvent{ID: "x-event-id", EventType: "event_type", AggregateType: "aggregate_type",
			CreatedAt: "created_at", Key: "key"}},
		{"another format", func(c *config.Config) { c.Message.Format = config.FormatEnvelope }, nil},
		{"the payload", func(c *config.Config) { c.BullMQ.Data = config.BullMQPayload }, nil},
	} {
		cfg := config.Default()
		c.set(&cfg)
		if got := jobEvent(cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Breaks it catches: options of jobs that are configured and do not reach the workers. Seen to fail without the delay.
func TestJobsHaveTheOptionsThatAreConfigured(t *testing.T) {
	b := config.Default().BullMQ
	b.Attempts, b.Backoff, b.RemoveOnFail.Count = 3, "exponential 1500ms", 7
	want := redis.JobOptions{
		Attempts: 3, BackoffType: "exponential", BackoffDelay: 1500 * time.Millisecond, RemoveOnFail: redis.JobKeep{Count: 7},
	}
	if got, err := jobOptions(b); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	b.Backoff = ""
	if got, err := jobOptions(b); err != nil || got.BackoffType != "" {
		t.Errorf("without a pause: got %+v, %v", got, err)
	}
}
