package settle

import (
	"context"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// diverterTick is the pause between two looks at what is in trouble, or diverterShare times as long as the last one
	// took: with thousands of topics it holds the sink's lock for long.
	diverterTick  = 250 * time.Millisecond
	diverterShare = 4
	// restTick is the pause while nothing is in trouble and no event is in flight.
	restTick = time.Second
	// topicPatience bounds how long a topic may be in trouble before its events are parked: longer than a leader election
	// or a topic that is being created takes, shorter than it takes to fill the window at a usual rate.
	topicPatience = 2 * time.Second

	// othersWell bounds how long ago another partition may have taken a batch to show that not everything is in trouble.
	// The window may be full of the troubled one's events by then, so that no other has had its turn since.
	othersWell = time.Minute
)

// diverter parks the events of topics and partitions that are in trouble, so that everything else flows, and brings
// them back when the trouble is over. It never diverts because the cluster is away: then all wait in the sink.
func (s *Settler) diverter(ctx context.Context) {
	pause := diverterTick
	for sleep(ctx, pause) {
		began := time.Now()
		// In a catch-up and before the look-ups are over too, or a missing topic could fill the window and end
		// neither: parking takes no place from anybody, only retries could, and they wait.
		if s.host.Owner() == nil || s.host.Stopping() {
			continue
		}
		troubles := s.engine.Troubles()
		for _, sick := range troubles {
			switch {
			case sick.Diverted && sick.Well:
				s.engine.Divert(sick.Topic, sick.Partition, false)
				said := "topic recovered; publishing its parked events"
				if why := s.TroubleOf(sick.Topic); why != nil && strings.HasSuffix(why.Text, before) { // nothing was tried since
					said = "publishing parked events of a topic that was unavailable before this start"
				}
				s.log.Info().Str("topic", sick.Topic).Int32("partition", sick.Partition).Msg(said)
			case !sick.Diverted && !sick.Well && s.shouldDivert(sick):
				s.divert(sick.Topic, sick.Partition, sick.Reason)
			case sick.Diverted && sick.Reason != "" && sick.Kind != sink.ClusterTrouble: // what is known of a topic stays
				s.because(sick.Topic, sick.Reason)
			}
			if sick.Diverted && sick.Probe {
				s.probe(sick)
			}
		}
		s.wakeWell()
		pause = max(diverterTick, diverterShare*time.Since(began))
		if window, _ := s.engine.Filled(); window == 0 && len(troubles) == 0 {
			pause = max(pause, restTick)
		}
	}
}

// wakeWell retries the parked events of topics that are no longer diverted: because they recovered, or
// because the partition is gone.
func (s *Settler) wakeWell() {
	for _, topic := range s.TroubledTopics() {
		if !s.engine.Diverted(topic) {
			s.diverted.Delete(topic)
			s.probes.end(topic)
			s.retrier.isWell(topic)
		}
	}
}

// shouldDivert reports whether events are parked for this trouble. What brokers say of a topic is about the topic
// only if they have answered since the trouble began: those that are frozen are not known to be away for some
// seconds, and what they said before proves nothing.
func (s *Settler) shouldDivert(sick sink.TroubleReport) bool {
	if sick.Since.IsZero() || s.isCopies(sick.Topic) || s.parked.Load() >= int64(s.c.Limits.ParkedEvents) {
		return false
	}
	switch sick.Kind {
	case sink.TopicTrouble:
		return sick.Partition == sink.WholeTopic && time.Since(sick.Since) > topicPatience && s.host.AnsweredSince(sick.Since)
	case sink.ClusterTrouble: // of one broker, if others live
		return sick.Full && time.Since(sick.Since) > topicPatience && s.host.AnsweredSince(sick.Since) &&
			s.engine.WellLately(othersWell)
	case sink.PartitionTrouble:
		if sick.Slow {
			return sick.Full && sick.Alone
		}
		return (sick.Full || time.Since(sick.Since) > time.Duration(s.c.Kafka.PartitionPatience)) &&
			s.engine.WellLately(othersWell)
	}
	return false
}

// because notes why something of the topic is diverted, as it is known now.
func (s *Settler) because(topic, why string) {
	if known := s.TroubleOf(topic); known == nil || known.Text != why {
		s.diverted.Store(topic, &sink.Reason{Class: outbox.Transient, Code: inTrouble, Text: why})
	}
}

func (s *Settler) divert(topic string, partition int32, why string) {
	s.because(topic, why)
	s.engine.Divert(topic, partition, true)
	s.log.Warn().Str("topic", topic).Int32("partition", partition).Str("reason", why).
		Msg("topic unavailable; parking its events until it recovers: in order, without spending an attempt")
}

// inTrouble is the code under which events are parked for their topic.
const inTrouble = "IN_TROUBLE"

// before says of a reason that it is from before this start, and may be over.
const before = " (seen before this start)"

// beforeStart is why a topic was in trouble, as the parked events tell.
func beforeStart(lastError string) string {
	why := strings.TrimSuffix(strings.TrimPrefix(lastError, inTrouble+": "), before)
	if why == "" {
		return "its events were parked before this start, without a stored reason; cdc-relay check shows problems"
	}
	return why + before
}

// troubled reports that the topic, or a partition of it, is diverted.
func (s *Settler) troubled(topic string) bool {
	_, yes := s.diverted.Load(topic)
	return yes
}

// TroubleOf says what the trouble of a diverted topic is; nil when it is not diverted.
func (s *Settler) TroubleOf(topic string) *sink.Reason {
	reason, _ := s.diverted.Load(topic)
	why, _ := reason.(*sink.Reason)
	return why
}

// TroubledTopics lists the topics with diverted events.
func (s *Settler) TroubledTopics() (topics []string) {
	s.diverted.Range(func(topic, _ any) bool {
		topics = append(topics, topic.(string))
		return true
	})
	return topics
}

// sleep waits; false: the context has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
