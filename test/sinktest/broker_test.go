package sinktest_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Broker with every fault switch. named says whether it names the guilty records.
func fixture(t *testing.T, named bool) sinktest.Fixture {
	b := sinktest.NewBroker()
	b.RecordLimit, b.BatchLimit = 100_000, 100_000
	var lost atomic.Int64
	var away, forbidden atomic.Bool
	b.Answer = func(a sinktest.Attempt) sinktest.Plan {
		switch {
		case away.Load():
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.NotWritten, Trouble: sink.ClusterTrouble, Pause: true,
				Err: errors.New("away")}}
		case forbidden.Load() && a.Batch.Topic == "topic-1":
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.NotWritten, Trouble: sink.TopicTrouble, Pause: true,
				Err: errors.New("forbidden")}}
		case lost.Add(-1) >= 0:
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Unknown, Trouble: sink.ClusterTrouble,
				Err: errors.New("lost")}, Written: true}
		}
		for i, r := range a.Batch.Records {
			if bytes.HasPrefix(r.Value, []byte("poison")) {
				o := sink.Outcome{Verdict: sink.Refused,
					Reasons: []*sink.Reason{{Class: outbox.Permanent, Code: "INVALID_RECORD", Text: "poison"}}}
				if named {
					o.Guilty = []int{i}
				}
				return sinktest.Plan{Outcome: o}
			}
		}
		return sinktest.Plan{}
	}
	t.Cleanup(func() {
		for _, v := range b.Violations() {
			t.Error(v)
		}
	})
	topics, leader := 0, int32(0)
	return sinktest.Fixture{
		Driver: b,
		Topic: func(_ *testing.T, partitions int) string {
			topics++
			b.SetTopic(fmt.Sprintf("topic-%d", topics), partitions)
			return fmt.Sprintf("topic-%d", topics)
		},
		Read:         func(_ *testing.T, topic string) []sinktest.Message { return b.Log(topic) },
		Deduplicates: true,
		Copies:       true,
		Poison: func(topic string, key []byte) *sink.Record {
			return &sink.Record{Topic: topic, Key: key, Value: []byte("poison"), Cost: 100}
		},
		LoseAnswers: func(n int) { lost.Store(int64(n)) },
		Outage:      func() func() { away.Store(true); return func() { away.Store(false) } },
		MoveLeader: func(_ *testing.T, topic string, partition int32) {
			leader++
			b.SetLeader(topic, partition, leader%3)
		},
		Ruins: map[string]func(*testing.T, string) func(){"Forbidden": func(*testing.T, string) func() {
			forbidden.Store(true)
			return func() { forbidden.Store(false) }
		}},
		MissingTopic: func(*testing.T) (string, func()) { return "missing", func() { b.SetTopic("missing", 3) } },
	}
}

// The suite itself must pass on a broker that keeps every rule. Seen to fail with an engine that does not hold a lane,
// and one that releases it too early.
func TestBrokerPassesTheSuite(t *testing.T) {
	t.Run("NamesTheGuilty", func(t *testing.T) {
		sinktest.Run(t, func(t *testing.T) sinktest.Fixture { return fixture(t, true) })
	})
	t.Run("DoesNotNameTheGuilty", func(t *testing.T) {
		sinktest.Run(t, func(t *testing.T) sinktest.Fixture { return fixture(t, false) })
	})
}
