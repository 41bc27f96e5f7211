package message

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// topicsCached bounds the cache of rendered topics: event data chooses them.
const topicsCached = 10_000

// topics tracks the topics that events choose.
type topics struct {
	copies    template                // dlq.topic
	forCopies func(topic string) bool // only copies of dead letters go there
	subjects  bool                    // they are subjects of NATS
	rendered  map[string]topicEntry
	scratch   []byte
	names     *Names // nil: any number of topics, and the state need not know them
}

type topicEntry struct {
	name   string
	reason *sink.Reason
}

// illegal says why nothing can go to the topic, "" if something can.
func (t *topics) illegal(topic string) string {
	if t.subjects && slices.Contains(strings.Split(topic, "."), "") {
		return "begins or ends with a dot, or has two of them in a row: that is not a subject of NATS"
	}
	return config.IllegalTopic(topic)
}

// IllegalTopic is the reason of an event whose topic cannot have its name.
func IllegalTopic(topic, why string) *sink.Reason {
	return permanent("INVALID_TOPIC", fmt.Sprintf("the event chooses the topic %.260q, which %s", topic, why))
}

// renderTopic gives the event's topic. The same name is always the same string, so that comparing two is cheap.
func (x *Encoder) renderTopic(e *outbox.Event) (string, *sink.Reason) {
	if column := x.topic.null(e); column != "" {
		return "", permanent("INVALID_TOPIC", "message.topic names the column "+column+", which is NULL in this row")
	}
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
		t = topicEntry{reason: IllegalTopic(t.name, why)}
	}
	if len(x.topics.rendered) >= topicsCached {
		clear(x.topics.rendered)
	}
	if t.reason == nil && x.topics.names != nil {
		t.reason = x.topics.names.use(t.name)
	}
	x.topics.rendered[string(cacheKey)] = t
	return t.name, t.reason
}

// copyTopic gives the topic for the copy of a dead letter.
func (x *Encoder) copyTopic(d Dead) (string, *sink.Reason) {
	if d.Record.Topic == "" && slices.Contains(x.topics.copies.fields, fieldTopic) {
		return "", permanent("INVALID_TOPIC", "dlq.topic names the event's topic, and the event has none")
	}
	if column := x.topics.copies.null(d.Event); column != "" {
		return "", permanent("INVALID_TOPIC", "dlq.topic names the column "+column+", which is NULL in this row")
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
