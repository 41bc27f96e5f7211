package brokers

import (
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink/redis"
)

func libraryOf(b config.BullMQ) string {
	if b.Version == 4 {
		return redis.LibraryBull
	}
	return redis.LibraryBullMQ
}

// jobEvent is how the data of a job names the parts of its event; nil: the data is the message's value. A key that is
// not the aggregate's id is not called so.
func jobEvent(cfg config.Config) *redis.JobEvent {
	if cfg.BullMQ.Data != config.BullMQEvent || cfg.Message.Format != config.FormatPlain {
		return nil
	}
	names := cfg.Message.HeaderNames()
	event := redis.JobEvent{ID: names[0], EventType: names[1], AggregateType: names[2], CreatedAt: names[3], Key: "key"}
	if cfg.Message.Key == config.Default().Message.Key {
		event.Key = "aggregate_id"
	}
	return &event
}
