package message

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// topicsCached bounds the cache of rendered topics: event data chooses them.
const topicsCached = 10_000

// topics is what an encoder knows of the topics that events choose.
type topics struct {
	copies    template                // dlq.topic
	forCopies func(topic string) bool // only copies of dead letters go there
	subjects  bool                    // they are subjects of NATS
	rendered  map[string]topicEntry
	scratch   []byte
	announced map[string]struct{} // those that the state knows records of ours to be in
	fresh     []string            // to be announced before the next record is sent
}

type topicEntry struct {
	name   string
	reason *sink.Reason
}

// FreshTopics are the topics that were chosen and are not announced: the state must know them before a record goes
// there, since a start after a crash looks into the topics that it knows of. Valid until the next Encode or Announced.
func (x *Encoder) FreshTopics() []string { return x.topics.fresh }

// FreshAnnounced says that the state knows the fresh topics.
func (x *Encoder) FreshAnnounced() {
	for _, topic := range x.topics.fresh {
		x.topics.announced[topic] = struct{}{}
	}
	x.topics.fresh = x.topics.fresh[:0]
}

// Announced says that the state knows the topic.
func (x *Encoder) Announced(topic string) { x.topics.announced[topic] = struct{}{} }

func (t *topics) use(topic string) {
	if _, known := t.announced[topic]; !known && !slices.Contains(t.fresh, topic) {
		t.fresh = append(t.fresh, topic)
	}
}

// illegal says why nothing can go to the topic, "" if something can.
func (t *topics) illegal(topic string) string {
	if t.subjects && slices.Contains(strings.Split(topic, "."), "") {
		return "begins or ends with a dot, or has two of them in a row: that is not a subject of NATS"
	}
	return config.IllegalTopic(topic)
}

// renderTopic gives the event's topic. The same name is always the same string, so that comparing two is cheap.
func (x *Encoder) renderTopic(e *outbox.Event) (string, *sink.Reason) {
	var cacheKey []byte
	if len(x.topic.fields) == 0 {
		cacheKey = nil
	} else if len(x.topic.fields) == 1 {
		cacheKey = x.topic.fields[0].of(e)
	} else {
		x.topics.scratch = x.render(x.topics.scratch[:0], x.topic, e)
		cacheKey = x.topics.scratch
	}
	if t, ok := x.topics.rendered[string(cacheKey)]; ok {
		return t.name, t.reason
	}
	t := topicEntry{name: string(x.render(nil, x.topic, e))}
	why := x.topics.illegal(t.name)
	if why == "" && x.topics.forCopies(t.name) {
		why = "is one of dlq.topic, where only copies of dead letters go"
	}
	if why != "" {
		said := fmt.Sprintf("the event chooses the topic %.260q, which %s", t.name, why)
		t = topicEntry{reason: permanent("INVALID_TOPIC", said)}
	}
	if len(x.topics.rendered) >= topicsCached {
		clear(x.topics.rendered)
	}
	if t.reason == nil {
		x.topics.use(t.name)
	}
	x.topics.rendered[string(cacheKey)] = t
	return t.name, t.reason
}

// copyTopic gives the topic for the copy of a dead letter.
func (x *Encoder) copyTopic(d Dead) (string, *sink.Reason) {
	if d.Record.Topic == "" && slices.Contains(x.topics.copies.fields, fieldTopic) {
		return "", permanent("INVALID_TOPIC", "dlq.topic names the event's topic, and the event has none")
	}
	topic := string(renderWith(nil, x.topics.copies, d.Event, d.Record.Topic))
	if why := x.topics.illegal(topic); why != "" {
		return "", permanent("INVALID_TOPIC", fmt.Sprintf("dlq.topic makes the topic %.260q, which %s", topic, why))
	}
	return topic, nil
}

// renderWith is render for a template that may name the event's topic.
func renderWith(b []byte, t template, e *outbox.Event, topic string) []byte {
	for i, f := range t.fields {
		if b = append(b, t.literals[i]...); f == fieldTopic {
			b = append(b, topic...)
		} else {
			b = append(b, f.of(e)...)
		}
	}
	return append(b, t.literals[len(t.fields)]...)
}
