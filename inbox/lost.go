package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
)

// LossMetrics is for a [Metrics] that also counts records that the topic lost before they were read.
type LossMetrics interface {
	// RecordsLost adds n records of a partition, 0 when it is assigned.
	RecordsLost(topic string, partition int32, n int64)
}

func (s *session) lostRecords(at lanes.Place, n int64) {
	s.c.metric(func(m Metrics) {
		if m, counts := m.(LossMetrics); counts {
			m.RecordsLost(at.Topic, at.Partition, n)
		}
	})
}

// starts compares where a partition's log starts with how far it was read.
func (s *session) starts(at lanes.Place, start int64) {
	from, here := s.engine.Fetched(at)
	if !here {
		return
	}
	s.mu.Lock()
	from = max(from, s.gone[at])
	s.gone[at] = max(start, s.gone[at])
	s.mu.Unlock()
	if start <= from {
		return
	}
	s.c.config.Log.Error("inbox: the topic has lost records before they were read: its retention has deleted them, or "+
		"somebody has. Their effects are missing", "consumer", s.c.config.Name, "topic", at.Topic, "partition", at.Partition,
		"from", from, "to", start-1)
	s.lostRecords(at, start-from)
}

// remade tells of a topic that was deleted and made again.
func (s *session) remade(at lanes.Place, next int64) {
	s.c.config.Log.Error("inbox: the topic was deleted and made again: what the former one had from this offset on, if "+
		"anything, was not read", "consumer", s.c.config.Name, "topic", at.Topic, "partition", at.Partition, "from", next)
}

// bounds asks where the partitions' logs start and end.
func (s *session) bounds(ctx context.Context) error {
	const latest, earliest = -1, -2
	for _, of := range []int64{earliest, latest} {
		request := kmsg.NewPtrListOffsetsRequest()
		request.ReplicaID = -1
		for topic, partitions := range byTopic(s.engine.Places()) {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			for _, number := range partitions {
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Partition, p.Timestamp = number, of
				t.Partitions = append(t.Partitions, p)
			}
			request.Topics = append(request.Topics, t)
		}
		if len(request.Topics) == 0 {
			return nil
		}
		answer, err := request.RequestWith(ctx, s.client)
		if err != nil {
			return fmt.Errorf("ask for the bounds of the partitions: %w", err)
		}
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				at := lanes.Place{Topic: t.Topic, Partition: p.Partition}
				switch failed := kerr.ErrorForCode(p.ErrorCode); {
				case failed != nil:
					err = errors.Join(err, fmt.Errorf("topic %s, partition %d: %w", t.Topic, p.Partition, failed))
				case of == earliest:
					s.starts(at, p.Offset)
				default:
					s.engine.End(at, p.Offset)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// joined returns an error while the process is not a member of its group, for longer than that takes.
func (s *session) joined(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.heartbeat
	if since.IsZero() {
		since = s.began
	}
	if silent := time.Since(since); silent > s.timeout {
		return fmt.Errorf("group %s has not answered for %v: are the brokers there, is the topic, may the login read the "+
			"group?", s.c.config.Group, silent.Round(time.Second))
	}
	return nil
}

// fetchFailed takes an error of a fetch.
func (s *session) fetchFailed(topic string, partition int32, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	s.c.config.Log.Warn("inbox: fetching", "consumer", s.c.config.Name, "topic", topic, "partition", partition,
		"error", err)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) {
		s.fail(fmt.Errorf("topic %s: %w: %w", topic, errTopic, err)) // the offsets are none of the other one's
	}
}

var errTopic = Outage(errors.New("the topic was deleted or made again"))

func (s *session) fed(p kgo.FetchTopicPartition) {
	if len(p.Records) == 0 {
		return
	}
	at := lanes.Place{Topic: p.Topic, Partition: p.Partition}
	s.starts(at, min(p.LogStartOffset, p.Records[0].Offset))
	s.sees(at, p.HighWatermark)
	s.engine.Feed(at, p.Records, p.HighWatermark)
}
