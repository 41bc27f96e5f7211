package kafka

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol/describeconfigs"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
)

const (
	// limitsInterval is how often the topics' limits are asked for.
	limitsInterval = time.Minute

	// limitFresh is how old a limit may be when a record is blamed by it without asking the broker to take it.
	limitFresh = time.Second

	// defaultMaxMessageBytes is a broker's default for max.message.bytes, presumed until the topic's own is known.
	defaultMaxMessageBytes = 1048588

	resourceTopic = 2 // resource type of a topic in DescribeConfigs
	configLimit   = "max.message.bytes"
)

// limit is a topic's max.message.bytes as far as known. Guarded by Driver.mu.
type limit struct {
	bytes int       // 0: not known
	at    time.Time // of the last answer, also of one that refused to say
}

// Limits are the largest batch and the largest single record for the topic, as Size counts them.
//
// The record's is not the topic's limit but what a broker can take at all: the driver compares a record with the
// topic's limit when it stands alone in its batch, after asking for the limit again (K6), and refuses it without
// sending it. A batch stays below a limit that is only presumed, as that costs nothing.
func (d *Driver) Limits(topic string) (batch, record int) {
	bytes := defaultMaxMessageBytes
	d.mu.Lock()
	if l := d.limits[topic]; l != nil && l.bytes > 0 {
		bytes = l.bytes
	}
	d.mu.Unlock()
	return max(min(d.config.MaxBatchBytes, bytes)-recordset.Overhead, 1), maxRequestBytes
}

// Size returns the most bytes that the record adds to a batch, before compression.
func (d *Driver) Size(r *sink.Record) int { return recordset.Bound(r) }

// learnSoon makes limitsLoop ask for the limits of topics that have none yet.
func (d *Driver) learnSoon(topics []string) {
	if len(d.unlearned(topics)) > 0 {
		d.learnNow()
	}
}

// unlearned are those of the topics that have no limit yet.
func (d *Driver) unlearned(topics []string) (missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range topics {
		if d.limits[t] == nil {
			missing = append(missing, t)
		}
	}
	return missing
}

func (d *Driver) learnNow() {
	select {
	case d.learn <- struct{}{}:
	default:
	}
}

// limitsLoop keeps the limits of the topics in use.
func (d *Driver) limitsLoop() {
	timer := time.NewTimer(limitsInterval)
	defer timer.Stop()
	for {
		var topics []string
		select {
		case <-d.ctx.Done():
			return
		case <-d.learn:
			topics, _ = d.asksFor(true)
			topics = d.unlearned(topics)
		case <-timer.C:
			topics, _ = d.asksFor(true)
			timer.Reset(limitsInterval)
		}
		if len(topics) > 0 {
			// A failure is nothing to act upon: the presumed limit stays, and the next refresh asks again.
			_ = d.learnLimits(d.ctx, topics)
		}
	}
}

// learnLimits asks for the limits of the topics.
func (d *Driver) learnLimits(ctx context.Context, topics []string) error {
	configs, err := d.describeTopics(ctx, topics, configLimit)
	if err != nil {
		return err
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for topic, c := range configs {
		bytes, err := strconv.Atoi(c.values[configLimit])
		if c.err != nil || err != nil || bytes <= 0 {
			bytes = 0 // not allowed to know, or the topic is away
		}
		d.limits[topic] = &limit{bytes: bytes, at: now}
	}
	return nil
}

// limitSince is the topic's limit as the cluster has had it at some time since, 0 when it cannot be learned.
func (d *Driver) limitSince(ctx context.Context, topic string, since time.Time) int {
	for try := range 2 {
		d.mu.Lock()
		l := d.limits[topic]
		d.mu.Unlock()
		if l != nil && l.at.After(since) {
			return l.bytes
		}
		if try == 0 && d.learnLimits(ctx, []string{topic}) != nil {
			return 0
		}
	}
	return 0
}

// tooLarge is the refusal of a single record that is larger than its topic allows, nil when it is not, or when the
// limit is not known: then the broker decides. It counts the bytes that would be sent, compressed, as the broker does.
func (d *Driver) tooLarge(ctx context.Context, b *sink.Batch) *sink.Reason {
	d.mu.Lock()
	l := d.limits[b.Topic]
	d.mu.Unlock()
	presumed := defaultMaxMessageBytes
	if l != nil && l.bytes > 0 {
		presumed = l.bytes
	}
	size := sizeOf(b)
	if size.plain <= presumed {
		return nil
	}
	if d.config.Compression != None {
		var try attempt // a giant is encoded twice: it is rare, and so is the giant that compression does not make small
		d.encode(&try, b)
		size.sent = len(try.bytes) - recordset.Prefix
	}
	if size.sent <= presumed {
		return nil
	}
	since := time.Now()
	if !b.Records[0].Again {
		since = since.Add(-limitFresh)
	}
	if known := d.limitSince(ctx, b.Topic, since); known > 0 && size.sent > known {
		return size.reason(known)
	}
	return nil
}

// size is the size of a record as a batch of its own, in bytes.
type size struct {
	plain int
	sent  int // after compression, as the broker counts
}

// sizeOf is the size of a batch of one record, which its attempt knows better if it was encoded.
func sizeOf(b *sink.Batch) size {
	plain := recordset.Alone(b.Records[0]) + recordset.Overhead
	if a, _ := b.State.(*attempt); a != nil && len(a.bytes) > 0 {
		return size{plain, len(a.bytes) - recordset.Prefix}
	}
	return size{plain, plain}
}

// reason tells size and limit; a limit of 0 is not known.
func (s size) reason(limit int) *sink.Reason {
	text := fmt.Sprintf("the record takes %d bytes as a batch of its own", s.sent)
	if s.sent < s.plain {
		text += fmt.Sprintf(" (%d before compression)", s.plain)
	}
	switch {
	case limit == 0:
		text += fmt.Sprintf(", more than the broker allows; the topic's %s could not be read", configLimit)
	case s.sent <= limit:
		// A topic with a compression.type of its own has the broker compress again, and count then.
		text += fmt.Sprintf("; the broker counts more after it compressed it by the topic's compression.type, and the "+
			"topic's %s is %d", configLimit, limit)
	default:
		text += fmt.Sprintf("; the topic's %s is %d", configLimit, limit)
	}
	return &sink.Reason{Class: outbox.Permanent, Code: codes.Of(codes.TooLarge).Name, Text: text}
}

// topicConfigs is some of a topic's configuration.
type topicConfigs struct {
	values map[string]string
	err    error
}

// describeTopics asks for some keys of the topics' configuration.
func (d *Driver) describeTopics(ctx context.Context, topics []string, keys ...string) (map[string]topicConfigs, error) {
	request := &connect.DescribeConfigs{Resources: make([]describeconfigs.RequestResource, len(topics))}
	for i, t := range topics {
		request.Resources[i] = describeconfigs.RequestResource{ResourceType: resourceTopic, ResourceName: t,
			ConfigNames: keys}
	}
	answer, err := d.ask(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask for the configuration of topics: %w", err)
	}
	result := make(map[string]topicConfigs, len(topics))
	for _, r := range answer.(*describeconfigs.Response).Resources {
		c := topicConfigs{values: make(map[string]string, len(r.ConfigEntries)),
			err: codes.ErrorOf(r.ErrorCode, r.ErrorMessage)}
		for _, e := range r.ConfigEntries {
			c.values[e.ConfigName] = e.ConfigValue
		}
		result[r.ResourceName] = c
	}
	return result, nil
}
