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
func (r *Relay) diverter(ctx context.Context) {
	for sleep(ctx, diverterTick) {
		// In a catch-up and before the look-ups are over too, or a missing topic could fill the window and end neither:
		// parking takes no place from anybody, only retries could, and they wait.
		if r.owner() == nil || r.stopping.Load() {
			continue
		}
		for _, t := range r.engine.Troubles() {
			switch {
			case t.Diverted && t.Well:
				r.engine.Divert(t.Topic, t.Partition, false)
				r.log.Info().Str("topic", t.Topic).Int32("partition", t.Partition).Msg("well again: its parked events are published")
			case !t.Diverted && !t.Well && r.shouldDivert(t):
				r.divert(t.Topic, t.Partition, t.Reason)
			}
		}
		r.wakeWell()
	}
}

// wakeWell brings back what is parked for topics of which nothing is diverted any more: because it is well, or because
// the partition is gone.
func (r *Relay) wakeWell() {
	for _, topic := range r.troubledTopics() {
		if !r.engine.Diverted(topic) {
			r.diverted.Delete(topic)
			r.retrier.isWell(topic)
		}
	}
}

func (r *Relay) shouldDivert(t sink.TroubleReport) bool {
	if t.Since.IsZero() || t.Topic == r.c.DLQ.Topic || r.parked.Load() >= int64(r.c.Limits.ParkedEvents) {
		return false
	}
	switch t.Kind {
	case sink.TopicTrouble:
		return t.Partition == wholeTopic && time.Since(t.Since) > topicPatience && r.clusterAnswered(t.Since)
	case sink.ClusterTrouble: // of one broker, if others live
		return t.Full && time.Since(t.Since) > topicPatience && r.clusterAnswered(t.Since) && r.engine.WellLately(othersWell)
	case sink.PartitionTrouble:
		if t.Slow {
			return t.Full && t.Alone
		}
		return (t.Full || time.Since(t.Since) > time.Duration(r.c.Kafka.PartitionPatience)) && r.engine.WellLately(othersWell)
	}
	return false
}

// clusterAnswered says that the brokers have answered since the trouble began: what they say of a topic is then about the topic.
// Brokers that are frozen are not known to be away for some seconds, and what they said before proves nothing.
func (r *Relay) clusterAnswered(since time.Time) bool {
	driver, tells := r.driver.(interface{ AnsweredSince(time.Time) bool })
	return !tells || driver.AnsweredSince(since)
}

func (r *Relay) divert(topic string, partition int32, why string) {
	r.diverted.Store(topic, &sink.Reason{Class: outbox.Transient, Code: "IN_TROUBLE", Text: why})
	r.engine.Divert(topic, partition, true)
	r.log.Warn().Str("topic", topic).Int32("partition", partition).Str("reason", why).
		Msg("in trouble: its events are parked, in order, until it is well; no attempt is spent, and everything else flows")
}

// troubled says that the topic, or a partition of it, is diverted.
func (r *Relay) troubled(topic string) bool {
	_, yes := r.diverted.Load(topic)
	return yes
}

// troubleOf says what the trouble of a diverted topic is; nil when it is not diverted.
func (r *Relay) troubleOf(topic string) *sink.Reason {
	reason, _ := r.diverted.Load(topic)
	why, _ := reason.(*sink.Reason)
	return why
}

// troubledTopics lists the topics of which something is diverted.
func (r *Relay) troubledTopics() (topics []string) {
	r.diverted.Range(func(topic, _ any) bool {
		topics = append(topics, topic.(string))
		return true
	})
	return topics
}
