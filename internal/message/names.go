package message

import (
	"fmt"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Names are the topics that rows have named, at most limits.topics of them: each costs memory here, at the brokers and
// in every request for metadata, and a column with a value of its own in each row would name them without end. A topic
// counts from its first event, whether it exists or not, and never again: its place is not given to another.
//
// An event for one more topic is a dead letter rather than parked. Parked events are retried, so a flood of names would
// fill limits.parked_events and stop the good topics; a dead letter keeps its payload and topic, and a replay publishes
// it once the limit is raised.
//
// Any goroutine may use it; it calls nothing.
type Names struct {
	most int // limits.topics

	mu    sync.Mutex // guards what follows
	known map[string]standing
	fresh []string // the names that are fresh, in order
	full  bool     // a topic was refused
}

// standing classifies a name.
type standing uint8

const (
	counted   standing = iota // nothing was sent there yet
	fresh                     // an event is about to go there, and the state does not know
	announced                 // the state knows it
)

// NewNames makes an empty set for at most so many names.
func NewNames(most int) *Names { return &Names{most: most, known: map[string]standing{}} }

// Fresh are the topics that were named and are not announced: the state must know them before a record goes there,
// since a start after a crash looks into the topics that it knows of.
func (n *Names) Fresh() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fresh[:len(n.fresh):len(n.fresh)]
}

// Announced notes that the state knows the topics. Those that it knew before count, however many they are: their events
// may have been sent.
func (n *Names) Announced(topics ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, topic := range topics {
		n.known[topic] = announced
	}
	var rest []string
	for _, topic := range n.fresh {
		if n.known[topic] != announced {
			rest = append(rest, topic)
		}
	}
	n.fresh = rest
}

// Unannounced are those of the topics that are within the limit and that the state does not know.
func (n *Names) Unannounced(topics []string) (unknown []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, topic := range topics {
		if n.takes(topic) && n.known[topic] != announced {
			unknown = append(unknown, topic)
		}
	}
	return unknown
}

// Refuse says why no record may go to the topic; nil when one may. It counts the topic.
func (n *Names) Refuse(topic string) *sink.Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.takes(topic) {
		return nil
	}
	return n.tooMany(topic)
}

// use is Refuse for a topic to which an event will go: unless it is announced, it is fresh.
func (n *Names) use(topic string) *sink.Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.takes(topic) {
		return n.tooMany(topic)
	}
	if n.known[topic] == counted {
		n.known[topic] = fresh
		n.fresh = append(n.fresh, topic)
	}
	return nil
}

// Full reports whether a topic was refused, and how many there may be.
func (n *Names) Full() (most int, full bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.most, n.full
}

// takes reports whether the topic is counted, and counts it if there is room. n.mu is held.
func (n *Names) takes(topic string) bool {
	if _, known := n.known[topic]; known {
		return true
	}
	if len(n.known) >= n.most {
		return false
	}
	n.known[topic] = counted
	return true
}

func (n *Names) tooMany(topic string) *sink.Reason {
	n.full = true
	return permanent(outbox.TopicLimit, fmt.Sprintf("the event chooses the topic %.260q, and rows have named %d topics "+
		"already: limits.topics is %d; if the topic is meant, raise limits.topics, restart the relay and replay this "+
		"dead letter; else have message.topic name a column with fewer values", topic, len(n.known), n.most))
}
