package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	diverterTick = 250 * time.Millisecond
	// topicPatience is how long a topic may be in trouble before its events are parked: longer than a leader election or a
	// topic that is being created takes, shorter than it takes to fill the window at a usual rate.
	topicPatience = 2 * time.Second

	// othersWell is how long ago another partition may have taken a batch to show that not everything is in trouble. The
	// window may be full of the troubled one's events by then, so that no other has had its turn since.
	othersWell = time.Minute

	wholeTopic = sink.WholeTopic
)

// diverter parks the events of topics and partitions that are in trouble, so that everything else flows, and brings them
// back when the trouble is over. It never diverts because the cluster is away: then all wait in the sink.
func (t *term) diverter(ctx context.Context) {
	for sleep(ctx, diverterTick) {
		// In a catch-up and before the look-ups are over too, or a missing topic could fill the window and end neither:
		// parking takes no place from anybody, only retries could, and they wait.
		if t.owner() == nil || t.stopping.Load() {
			continue
		}
		for _, sick := range t.engine.Troubles() {
			switch {
			case sick.Diverted && sick.Well:
				t.engine.Divert(sick.Topic, sick.Partition, false)
				t.r.log.Info().Str("topic", sick.Topic).Int32("partition", sick.Partition).Msg("well again: its parked events are published")
			case !sick.Diverted && !sick.Well && t.shouldDivert(sick):
				t.divert(sick.Topic, sick.Partition, sick.Reason)
			}
		}
		t.wakeWell()
	}
}

// wakeWell brings back what is parked for topics of which nothing is diverted any more: because it is well, or because
// the partition is gone.
func (t *term) wakeWell() {
	for _, topic := range t.troubledTopics() {
		if !t.engine.Diverted(topic) {
			t.diverted.Delete(topic)
			t.retrier.isWell(topic)
		}
	}
}

func (t *term) shouldDivert(sick sink.TroubleReport) bool {
	if sick.Since.IsZero() || sick.Topic == t.r.c.DLQ.Topic || t.parked.Load() >= int64(t.r.c.Limits.ParkedEvents) {
		return false
	}
	switch sick.Kind {
	case sink.TopicTrouble:
		return sick.Partition == wholeTopic && time.Since(sick.Since) > topicPatience && t.r.clusterAnswered(sick.Since)
	case sink.ClusterTrouble: // of one broker, if others live
		return sick.Full && time.Since(sick.Since) > topicPatience && t.r.clusterAnswered(sick.Since) && t.engine.WellLately(othersWell)
	case sink.PartitionTrouble:
		if sick.Slow {
			return sick.Full && sick.Alone
		}
		return (sick.Full || time.Since(sick.Since) > time.Duration(t.r.c.Kafka.PartitionPatience)) && t.engine.WellLately(othersWell)
	}
	return false
}

// clusterAnswered says that the brokers have answered since the trouble began: what they say of a topic is then about the topic.
// Brokers that are frozen are not known to be away for some seconds, and what they said before proves nothing.
func (r *Relay) clusterAnswered(since time.Time) bool {
	driver, tells := r.driver.(interface{ AnsweredSince(time.Time) bool })
	return !tells || driver.AnsweredSince(since)
}

func (t *term) divert(topic string, partition int32, why string) {
	t.diverted.Store(topic, &sink.Reason{Class: outbox.Transient, Code: "IN_TROUBLE", Text: why})
	t.engine.Divert(topic, partition, true)
	t.r.log.Warn().Str("topic", topic).Int32("partition", partition).Str("reason", why).
		Msg("in trouble: its events are parked, in order, until it is well; no attempt is spent, and everything else flows")
}

// troubled says that the topic, or a partition of it, is diverted.
func (t *term) troubled(topic string) bool {
	_, yes := t.diverted.Load(topic)
	return yes
}

// troubleOf says what the trouble of a diverted topic is; nil when it is not diverted.
func (t *term) troubleOf(topic string) *sink.Reason {
	reason, _ := t.diverted.Load(topic)
	why, _ := reason.(*sink.Reason)
	return why
}

// troubledTopics lists the topics of which something is diverted.
func (t *term) troubledTopics() (topics []string) {
	t.diverted.Range(func(topic, _ any) bool {
		topics = append(topics, topic.(string))
		return true
	})
	return topics
}
