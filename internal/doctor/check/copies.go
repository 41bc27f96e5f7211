package check

import (
	"context"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// namesColumns reports whether dlq.topic depends on more of a row than the topic of its event.
func namesColumns(template string) bool {
	parts, _ := config.ParseTemplate(template) // its rule has checked it
	return slices.ContainsFunc(parts, func(p config.Part) bool {
		return p.Column != "" && p.Column != config.EventTopic
	})
}

// copyParts are the parts of dlq.topic by the table's columns, with those of message.topic in the place of {topic}.
func copyParts(cfg config.Config) (list []outbox.Part) {
	parts, _ := config.ParseTemplate(cfg.DLQ.Topic) // its rule has checked it
	for i, p := range parts {
		if p.Column == config.EventTopic {
			list = append(list, eventParts(cfg)...)
		} else {
			list = append(list, columnsOf(parts[i:i+1], cfg)...)
		}
	}
	return list
}

// copyTopics are the topics that copies of dead letters can go to: of the events' topics that are known, or as the rows
// say.
func copyTopics(cfg config.Config, events []string, c chosen) []string {
	switch {
	case cfg.DLQ.Topic == "":
		return nil
	case namesColumns(cfg.DLQ.Topic):
		return c.copies
	case !strings.Contains(cfg.DLQ.Topic, "{"):
		return []string{cfg.DLQ.Topic}
	}
	list := make([]string, len(events))
	for i, topic := range events {
		list[i] = strings.ReplaceAll(cfg.DLQ.Topic, "{"+config.EventTopic+"}", topic)
	}
	return list
}

// examineCopies looks at the topics for copies of dead letters. One that is missing is found here, and not when an
// event dies: its row is written when the copy is acknowledged, so that one would hold up the others.
func examineCopies(ctx context.Context, j judge, driver *kafka.Driver, r *Report, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return addTopics(ctx, driver, r, "dlq topic", names, func(t kafka.Topic) (l Level, text, fix string) {
		l, text, fix = j.topic(t)
		switch illegal := config.IllegalTopic(t.Name); {
		case illegal != "":
			text = "such a name " + illegal + "; dead letters that choose it are in their table only"
			fix = "correct the rows' values, or dlq.topic"
		case kafka.IsUnknownTopic(t.Err) && j.cfg.Kafka.CreateTopics.Enabled:
			return j.creation(ctx, driver, t.Name)
		case t.Err != nil:
			text = strings.Replace(text, "its events are parked",
				"dead letters wait for it", 1)
		}
		return l, text, fix
	})
}
