package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// StandardHeaders are the headers that every message has, unless message.headers gives them another name, or
// message.format has its own.
var StandardHeaders = [4]string{"id", "event_type", "aggregate_type", "created_at"}

// The headers of a CloudEvent in Kafka's binary content mode (CloudEvents 1.0, Kafka Protocol Binding, section 3.2).
// The aggregate type is an extension attribute: the name of one may have only a-z and 0-9.
const (
	CloudEventID            = "ce_id"
	CloudEventType          = "ce_type"
	CloudEventTime          = "ce_time"
	CloudEventAggregateType = "ce_aggregatetype"
	CloudEventVersion       = "ce_specversion"
	CloudEventSource        = "ce_source"
	CloudEventSubject       = "ce_subject"
	CloudEventContentType   = "content-type"
)

// CloudEventHeaders lists the headers that rows cannot set when message.format is cloudevents.
func CloudEventHeaders() []string {
	return []string{
		CloudEventID, CloudEventType, CloudEventTime, CloudEventAggregateType,
		CloudEventVersion, CloudEventSource, CloudEventSubject, CloudEventContentType,
	}
}

// HeaderNames are the names of the headers for id, event type, aggregate type and created_at, in this order.
func (m Message) HeaderNames() [4]string {
	if m.Format == FormatCloudEvents {
		return [4]string{CloudEventID, CloudEventType, CloudEventAggregateType, CloudEventTime}
	}
	names := StandardHeaders
	for i, name := range names {
		if renamed, ok := m.Headers[name]; ok {
			names[i] = renamed
		}
	}
	return names
}

// cloudEventHeaders refuses what cannot come true: the names of a CloudEvent's headers are not ours to choose.
var cloudEventHeaders = relation{
	keys: []string{"message.headers", "message.format"},
	allowed: "with message.format cloudevents, further columns only: its headers have fixed names (" +
		strings.Join(CloudEventHeaders(), ", ") + ")",
	check: func(c *Config) string {
		if c.Message.Format != FormatCloudEvents {
			return ""
		}
		for _, column := range slices.Sorted(maps.Keys(c.Message.Headers)) {
			name := c.Message.Headers[column]
			taken := slices.ContainsFunc(CloudEventHeaders(), func(own string) bool { return strings.EqualFold(own, name) })
			if taken || slices.Contains(StandardHeaders[:], column) {
				return fmt.Sprintf("%s: %q", column, name)
			}
		}
		return ""
	},
}
