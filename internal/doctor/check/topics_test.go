package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// A stand-in has no replicas, so what is said of topics is tested on descriptions. Seen to fail with leaderless
// partitions passed over, and min.insync.replicas compared off by one.
func TestTopicsAreJudgedByTheirWorst(t *testing.T) {
	partition := func(leader int32, inSync int) kafka.Partition {
		return kafka.Partition{Leader: leader, Replicas: make([]int32, 3), InSync: make([]int32, inSync)}
	}
	good := kafka.Topic{Name: "t", Partitions: []kafka.Partition{partition(1, 3), partition(2, 3)},
		MaxMessageBytes: 1 << 20, MinInSyncReplicas: 2, CleanupPolicy: "delete"}
	for name, c := range map[string]struct {
		change func(*kafka.Topic)
		limit  config.ByteSize
		stamp  string
		want   Level
		text   string
	}{
		"good": {want: OK,
			text: "2 partitions, 3 replicas, min.insync.replicas 2, max.message.bytes 1048576, cleanup.policy delete"},
		"not there": {change: func(x *kafka.Topic) {
			x.Err = errors.New("it is away")
		}, want: Fail, text: "away"},
		"no leader": {change: func(x *kafka.Topic) {
			x.Partitions[1].Leader = -1
		}, want: Fail, text: "no leader for partition 0"},
		"too few in sync": {change: func(x *kafka.Topic) {
			x.Partitions[1].InSync = nil
		}, want: Fail, text: "fewer replicas in sync"},
		"asks for the impossible": {change: func(x *kafka.Topic) {
			x.MinInSyncReplicas = 4
		}, want: Fail, text: "no write can ever be acknowledged"},
		"compacted": {change: func(x *kafka.Topic) {
			x.CleanupPolicy = "compact,delete"
		}, want: Warn, text: "only the last message of a key"},
		"one in sync is enough": {change: func(x *kafka.Topic) {
			x.MinInSyncReplicas = 1
		}, want: Warn, text: "acknowledged by a single broker"},
		"small messages":  {limit: 2 << 20, want: Warn, text: "smaller than limits.max_event_bytes 2MiB"},
		"limit that fits": {limit: 1 << 20, want: OK},
		"may not write": {change: func(x *kafka.Topic) {
			x.Writable = kafka.Denied
		}, want: Fail, text: "may not write"},
		"neither written nor read": {change: func(x *kafka.Topic) {
			x.Writable, x.ConfigErr = kafka.Denied, errors.New("denied")
		}, want: Fail, text: "may not write"},
		"may not read": {change: func(x *kafka.Topic) {
			x.Writable, x.Readable = kafka.Granted, kafka.Denied
		}, want: Warn, text: "lacks Read, so what it holds cannot be read back"},
		"may write": {change: func(x *kafka.Topic) { x.Writable = kafka.Granted }, want: OK},
		"refuses the old": {change: func(x *kafka.Topic) { x.OldestMessage = time.Hour }, stamp: config.TimestampCreatedAt,
			want: Warn, text: "older than 1h"},
		"old ones are new": {change: func(x *kafka.Topic) { x.OldestMessage = time.Hour }, want: OK},
		"takes its own time": {change: func(x *kafka.Topic) {
			x.OldestMessage, x.TimestampType = time.Hour, "LogAppendTime"
		}, stamp: config.TimestampCreatedAt, want: OK},
		"forgets the old": {change: func(x *kafka.Topic) { x.Retention = time.Hour }, stamp: config.TimestampCreatedAt,
			want: Warn, text: "keeps records for 1h0m0s"},
		"forgets by the time of publishing": {change: func(x *kafka.Topic) { x.Retention = time.Hour }, want: OK},
		"refuses the new": {change: func(x *kafka.Topic) {
			x.NewestMessage = time.Second
		}, want: Warn, text: "more than 1s ahead"},
		"takes the new": {change: func(x *kafka.Topic) { x.NewestMessage = time.Hour }, want: OK},
	} {
		topic := good
		topic.Partitions = slices.Clone(good.Partitions)
		if c.change != nil {
			c.change(&topic)
		}
		cfg := config.Default()
		cfg.Limits.MaxEventBytes = c.limit
		if c.stamp != "" {
			cfg.Message.Timestamp = c.stamp
		}
		l, text, fix := judge{cfg: cfg, by: brokers.Kafka(cfg).Fitting(3), brokers: 3}.topic(topic)
		if l != c.want || !strings.Contains(text, c.text) || (l == OK) != (fix == "") {
			t.Errorf("%s: got %s %q, fix %q; want %s with %q, and a fix unless it is ok", name, l, text, fix, c.want, c.text)
		}
	}
}
