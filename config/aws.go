package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"
)

// The sinks of AWS.
const (
	SinkSQS         = "sqs"
	SinkSNS         = "sns"
	SinkEventBridge = "eventbridge"
)

// SQS is where the queues of Amazon SQS are. Credentials are found as AWS's SDK finds them.
type SQS struct {
	Region          string    `key:"region" help:"AWS region; empty: AWS_REGION or the profile's"`
	Endpoint        string    `key:"endpoint" help:"URL of a VPC endpoint or a stand-in; empty: AWS's"`
	Account         string    `key:"account" help:"owning account; empty: the credentials'"`
	Standard        bool      `key:"standard" help:"standard, without order and deduplication, unless the name ends in .fifo; false: FIFO only"`
	CreateQueues    CreateAWS `key:"create_queues"`
	MaxMessageBytes ByteSize  `key:"max_message_bytes" help:"dead-letter larger messages, attributes counted; 1MiB for queues that allow it"`
	Requests        int       `key:"requests" help:"concurrent requests per destination, of up to ten messages; one per key"`
	Timeout         Duration  `key:"timeout" help:"maximum time for one request, answer included"`
}

// SNS is where the topics of Amazon SNS are. Credentials are found as AWS's SDK finds them.
type SNS struct {
	Region       string    `key:"region" help:"AWS region; empty: AWS_REGION or the profile's"`
	Endpoint     string    `key:"endpoint" help:"URL of a VPC endpoint or a stand-in; empty: AWS's"`
	Account      string    `key:"account" help:"owning account; empty: the credentials'"`
	Standard     bool      `key:"standard" help:"standard, without order and deduplication, unless the name ends in .fifo; false: FIFO only"`
	CreateTopics CreateAWS `key:"create_topics"`
	Requests     int       `key:"requests" help:"concurrent requests per destination, of up to ten messages; one per key"`
	Timeout      Duration  `key:"timeout" help:"maximum time for one request, answer included"`
}

// EventBridge is where the event buses of Amazon EventBridge are, and what their events are like. Credentials are found
// as AWS's SDK finds them.
type EventBridge struct {
	Region        string    `key:"region" help:"AWS region; empty: AWS_REGION or the profile's"`
	Endpoint      string    `key:"endpoint" help:"URL of a VPC endpoint or a stand-in; empty: AWS's"`
	Account       string    `key:"account" help:"owning account; empty: the credentials'"`
	Source        string    `key:"source" help:"source of an event; columns that are headers of the message in braces, and {key}, the message key"`
	DetailType    string    `key:"detail_type" help:"detail-type, as source; empty becomes event"`
	CreateBuses   CreateAWS `key:"create_buses"`
	MaxEventBytes ByteSize  `key:"max_event_bytes" help:"dead-letter larger events, as EventBridge counts"`
	Requests      int       `key:"requests" help:"concurrent requests per destination, of up to ten messages; one per key"`
	Timeout       Duration  `key:"timeout" help:"maximum time for one request, answer included"`
}

// CreateAWS configures whether missing queues, topics or buses are created.
type CreateAWS struct {
	Enabled bool `key:"enabled" help:"create missing ones; false: their events wait"`
}

const (
	awsRequests = 16
	awsTimeout  = Duration(10 * time.Second)
	awsBytes    = 256 << 10
)

func defaultSQS() SQS {
	return SQS{MaxMessageBytes: awsBytes, Requests: awsRequests, Timeout: awsTimeout}
}

func defaultSNS() SNS { return SNS{Requests: awsRequests, Timeout: awsTimeout} }

func defaultEventBridge() EventBridge {
	return EventBridge{Source: "outbox.{aggregate_type}", DetailType: "{event_type}", MaxEventBytes: awsBytes,
		Requests: awsRequests, Timeout: awsTimeout}
}

// awsRules are those of the three sections, most of whose keys are the same.
func awsRules() map[string]rule {
	list := map[string]rule{
		"sqs.standard": boolean(), "sns.standard": boolean(),
		"sqs.create_queues.enabled": boolean(), "sns.create_topics.enabled": boolean(),
		"eventbridge.create_buses.enabled": boolean(),
		"sqs.max_message_bytes":            sizes(1<<10, 1<<20),
		"eventbridge.max_event_bytes":      sizes(1<<10, 1<<20),
		"eventbridge.source":               eventTemplate(),
		"eventbridge.detail_type":          eventTemplate(),
	}
	for _, section := range []string{SinkSQS, SinkSNS, SinkEventBridge} {
		list[section+".region"] = optional(matching(`^[a-z]{2,}(-[a-z0-9]+)+$`, maxText, "an AWS region such as eu-west-1"))
		list[section+".endpoint"] = optional(typed("https://host or http://host, without a login", func(v string) string {
			u, err := url.Parse(v)
			return accept(err == nil && isEndpoint(v) && u.User == nil)
		}))
		list[section+".account"] = optional(matching(`^\d{12}$`, maxText, "an account number of 12 digits"))
		list[section+".requests"] = count(1, 256)
		list[section+".timeout"] = durations(Duration(100*time.Millisecond), Duration(time.Minute))
	}
	return list
}

// joined is the rules of both.
func joined(some, others map[string]rule) map[string]rule {
	maps.Copy(some, others)
	return some
}

// eventTemplate allows what the driver can fill in: columns that every message has as headers, and the key.
func eventTemplate() rule {
	return typed("text with {id}, {event_type}, {aggregate_type}, {created_at} and {key}", func(v string) string {
		parts, err := ParseTemplate(v)
		if err != nil {
			return err.Error()
		}
		for _, p := range parts {
			if p.Column != "" && p.Column != "key" && !slices.Contains(StandardHeaders[:], p.Column) {
				return fmt.Sprintf("{%s} is not a header of every message", p.Column)
			}
		}
		return accept(v != "")
	})
}
