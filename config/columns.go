package config

import (
	"fmt"
	"slices"
	"strings"
)

// The fields of an event that a table may lack, or that may be composed of its columns.
const (
	fieldAggregateType = "aggregate_type"
	fieldAggregateID   = "aggregate_id"
)

// AggregateFields are the keys below outbox.columns that may be empty, or templates over columns: those of the
// aggregate's type and id.
var AggregateFields = [2]string{fieldAggregateType, fieldAggregateID}

// IsTemplate reports whether the value of outbox.columns.aggregate_type or aggregate_id is a template over columns, and
// not a column's name.
func IsTemplate(value string) bool { return strings.Contains(value, "{") }

// Of resolves a name of a template in the table. A name means the event's own field first, then a column: it
// gives one part with the column's name, or the parts of an aggregate_type or aggregate_id that is a template, or none
// when the event has no such field.
func (c Columns) Of(name string) []Part {
	own := map[string]string{"id": c.ID, "event_type": c.EventType, "created_at": c.CreatedAt, "payload": c.Payload,
		"headers": c.Headers}
	switch {
	case name == fieldAggregateType:
		return c.composed(c.AggregateType, own)
	case name == fieldAggregateID:
		return c.composed(c.AggregateID, own)
	case own[name] != "":
		name = own[name]
	}
	return []Part{{Column: name}}
}

// composed are the parts of an aggregate's field. In its template a name is never the aggregate's own field, so that
// {tenant}:{aggregate_id} can compose one from the column of that name.
func (c Columns) composed(value string, own map[string]string) []Part {
	if value == "" {
		return nil
	}
	if !IsTemplate(value) {
		return []Part{{Column: value}}
	}
	parts, _ := ParseTemplate(value) // its rule has checked it
	for i, p := range parts {
		if column := own[p.Column]; column != "" {
			parts[i].Column = column
		}
	}
	return parts
}

// aggregateColumn allows a column, a template over columns, or nothing.
func aggregateColumn() rule {
	const allowed = identifierAllowed + "; or a template of columns in braces, such as {tenant}:{order_id}"
	r := typed(allowed, func(v string) string {
		if !IsTemplate(v) {
			_, ok := nameOf(v)
			return accept(ok && !strings.Contains(v, "}"))
		}
		if _, err := ParseTemplate(v); err != nil {
			return err.Error()
		}
		return ""
	})
	r.read = func(v string) string {
		if IsTemplate(v) {
			return v
		}
		name, _ := nameOf(v)
		return name
	}
	return optional(r)
}

// names reports whether a template names the field.
func names(template, field string) bool {
	parts, _ := ParseTemplate(template) // its rule has checked it
	return slices.Contains(parts, Part{Column: field})
}

// A table without a column for the aggregate's type needs topics that do not name it: all events would share one topic
// with an odd name. Without aggregate_id nothing is refused: {aggregate_id} is as NULL, and an event without a key is
// an aggregate of its own.
var aggregateless = []relation{
	{
		keys: []string{"message.topic", "outbox.columns.aggregate_type"},
		allowed: "with outbox.columns.aggregate_type empty, a topic that does not name {aggregate_type}, such as events or " +
			"outbox.event.{event_type}",
		check: func(c *Config) string {
			if c.Outbox.Columns.AggregateType != "" || !names(c.Message.Topic, fieldAggregateType) {
				return ""
			}
			return fmt.Sprintf("%q with aggregate_type empty", c.Message.Topic)
		},
	},
	{
		keys:    []string{"bullmq.job_name", "bullmq.job_id", "outbox.columns.aggregate_type", "sink"},
		allowed: "with outbox.columns.aggregate_type empty, names and ids of jobs without {aggregate_type}",
		check: func(c *Config) string {
			if b := c.BullMQ; c.Sink != SinkBullMQ || c.Outbox.Columns.AggregateType != "" ||
				!names(b.JobName+b.JobID, fieldAggregateType) {
				return ""
			}
			return fmt.Sprintf("%q and %q with aggregate_type empty", c.BullMQ.JobName, c.BullMQ.JobID)
		},
	},
	{
		keys: []string{"rabbitmq.routing_key", "outbox.columns.aggregate_type", "sink"},
		allowed: "with outbox.columns.aggregate_type empty, a routing key that does not name {aggregate_type}, such as " +
			"{event_type}",
		check: func(c *Config) string {
			if c.Sink != SinkRabbitMQ || c.Outbox.Columns.AggregateType != "" ||
				!names(c.RabbitMQ.RoutingKey, fieldAggregateType) {
				return ""
			}
			return fmt.Sprintf("%q with aggregate_type empty", c.RabbitMQ.RoutingKey)
		},
	},
}
