package config

import (
	"fmt"
	"regexp"
	"strings"
)

// EventTopic is the name in a dlq.topic template that stands for the topic of the dead letter's event.
const EventTopic = "topic"

// copyTopics allows a topic, or a template with a fixed part: otherwise copies could go where events go.
func copyTopics() rule {
	topic := topicTemplate()
	const allowed = "a topic name of a-z, A-Z, 0-9, '.', '_' and '-', at most 249 long and not beginning with __; " +
		"{topic} and columns of the row in braces beside text that only copies' topics have, such as {topic}.dlq, or empty"
	return rule{allowed: allowed, check: func(value any) string {
		text := value.(string)
		if text == "" {
			return ""
		}
		if complaint := topic.check(value); complaint != "" {
			return complaint
		}
		parts, _ := ParseTemplate(text)
		for _, p := range parts {
			if p.Literal != "" {
				return ""
			}
		}
		return "nothing in it distinguishes copies from events"
	}}
}

// Matcher reports whether a topic is one for copies of dead letters, which no event may go to: dlq.topic, with anything
// in the place of what is in braces.
func (d DLQ) Matcher() func(topic string) bool {
	parts, err := ParseTemplate(d.Topic)
	if d.Topic == "" || err != nil {
		return func(string) bool { return false }
	}
	var pattern strings.Builder
	for _, p := range parts {
		if p.Column != "" {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(p.Literal))
	}
	if len(parts) == 1 && parts[0].Column == "" {
		return func(topic string) bool { return topic == d.Topic }
	}
	return regexp.MustCompile("(?s)^" + pattern.String() + "$").MatchString
}

// separateCopies refuses a message.topic whose every topic would be one for copies: each event would be dead.
var separateCopies = relation{
	keys:    []string{"dlq.topic", "message.topic"},
	allowed: "topics that events cannot have, such as {topic}.dlq",
	check: func(c *Config) string {
		parts, _ := ParseTemplate(c.Message.Topic) // its rule has checked it
		var any strings.Builder
		for _, p := range parts {
			if any.WriteString(p.Literal); p.Column != "" {
				any.WriteByte(0) // which stands for whatever a row has there: no literal text matches it
			}
		}
		if !c.DLQ.Matcher()(any.String()) {
			return ""
		}
		return fmt.Sprintf("%q with message.topic %q: every event would go to a topic for copies", c.DLQ.Topic,
			c.Message.Topic)
	},
}
