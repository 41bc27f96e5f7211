package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
)

// LossMetrics is a [Metrics] that also counts records that the topic lost before they were read.
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
	adopted := s.startless[at]
	delete(s.startless, at)
	s.mu.Unlock()
	if start <= from || adopted {
		return
	}
	s.c.config.Log.Error("inbox: the topic has lost records before they were read: its retention or an administrator "+
		"deleted them. Their effects are missing", "consumer", s.c.config.Name, "topic", at.Topic, "partition", at.Partition,
		"from", from, "to", start-1)
	s.lostRecords(at, start-from)
}

// end is where a partition's log ended when that was seen last.
type end struct {
	topicID string
	offset  int64
}

// ended notes where a partition's log ends, for the time when the topic is gone.
func (s *session) ended(at lanes.Place, offset int64) {
	id := s.topicID(at.Topic)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if last := s.c.ends[at]; last.topicID == id {
		offset = max(offset, last.offset)
	}
	s.c.ends[at] = end{id, offset}
}

// remade reports a topic that was deleted and created again. next is how far the former one was handled.
func (s *session) remade(at lanes.Place, formerID string, next int64) {
	s.c.mu.Lock()
	last, seen := s.c.ends[at]
	s.c.mu.Unlock()
	log := s.c.config.Log.With("consumer", s.c.config.Name, "topic", at.Topic, "partition", at.Partition, "from", next)
	switch {
	case !seen || last.topicID != formerID:
		log.Error("inbox: the topic was deleted and created again; records of the former topic from this offset on were "+
			"not read, and their effects are missing. How many there were is unknown", "to", "unknown")
	case last.offset > next:
		log.Error("inbox: the topic was deleted and created again before all its records were read. Their effects are "+
			"missing", "to", last.offset-1)
		s.lostRecords(at, last.offset-next)
	default:
		log.Warn("inbox: the topic was deleted and created again; the former one was read to its end")
	}
}

const latest, earliest = -1, -2 // of a log, as ListOffsets names them

// bounds asks where the partitions' logs start and end.
func (k *kafka) bounds(ctx context.Context) error {
	places := k.engine.Places()
	starts, err := k.listed(ctx, places, earliest)
	for at, start := range starts {
		k.starts(at, start)
	}
	ends, failed := k.listed(ctx, places, latest)
	for at, end := range ends {
		k.ended(at, end)
		k.engine.End(at, end)
	}
	return errors.Join(err, failed)
}

// listed asks for an offset of each partition. With an error it returns those that were answered.
func (k *kafka) listed(ctx context.Context, places []lanes.Place, which int64) (map[lanes.Place]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	for topic, partitions := range byTopic(places) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, number := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = number, which
			t.Partitions = append(t.Partitions, p)
		}
		request.Topics = append(request.Topics, t)
	}
	if len(request.Topics) == 0 {
		return nil, nil
	}
	answer, err := request.RequestWith(ctx, k.client)
	if err != nil {
		return nil, fmt.Errorf("ask for the bounds of the partitions: %w", err)
	}
	listed := map[lanes.Place]int64{}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if failed := kerr.ErrorForCode(p.ErrorCode); failed != nil {
				err = errors.Join(err, fmt.Errorf("topic %s, partition %d: %w", t.Topic, p.Partition, failed))
				continue
			}
			listed[lanes.Place{Topic: t.Topic, Partition: p.Partition}] = p.Offset
		}
	}
	return listed, err
}

// fetchFailed takes an error of a fetch.
func (k *kafka) fetchFailed(topic string, partition int32, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if refused := new(kgo.ErrGroupSession); errors.As(err, &refused) {
		k.refuse(err)
		return
	}
	k.c.config.Log.Warn("inbox: fetching", "consumer", k.c.config.Name, "topic", topic, "partition", partition,
		"error", err)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) {
		k.fail(fmt.Errorf("topic %s: %w: %w", topic, errTopic, err)) // the offsets are none of the other one's
	}
}

var errTopic = Outage(errors.New("the topic was deleted or created again"))

func (k *kafka) fed(p kgo.FetchTopicPartition) {
	if len(p.Records) == 0 {
		return
	}
	at := lanes.Place{Topic: p.Topic, Partition: p.Partition}
	k.starts(at, min(p.LogStartOffset, p.Records[0].Offset))
	k.sees(at, p.HighWatermark)
	k.ended(at, p.HighWatermark)
	k.engine.Feed(at, p.Records, p.HighWatermark)
}
