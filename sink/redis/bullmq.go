package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
)

// BullMQ adds to queues. Make it with NewBullMQ.
type BullMQ struct {
	*redisconn.Server
	config  BullMQConfig
	opening []byte        // of each job's options
	changed chan struct{} // never closed: queues exist as soon as something is added
	alarms  sink.AlarmBook
	queues  sink.Nodes[*queue]

	outboxes conditional.Outboxes
}

var (
	_ sink.Driver   = (*BullMQ)(nil)
	_ sink.Deferrer = (*BullMQ)(nil)
	_ sink.Witness  = (*BullMQ)(nil)
	_ sink.Leaver   = (*BullMQ)(nil)

	_ sink.Recognizer = (*BullMQ)(nil)
)

// NewBullMQ makes a driver. It connects when it is used, and asks the server every two seconds whether it is there.
func NewBullMQ(c BullMQConfig) (*BullMQ, error) {
	if c.Library == "" {
		c.Library = LibraryBullMQ
	}
	if c.Prefix == "" {
		c.Prefix = "bull" // of both libraries
	}
	opening, err := c.Options.opening()
	if err != nil {
		return nil, err
	}
	needs := jobRights(c.Library)
	if c.MinReplicas > 0 {
		needs += " +wait"
	}
	server, err := redisconn.Open(redisconn.Config{
		URL: c.URL, PasswordFile: c.PasswordFile, Sentinel: c.Sentinel, Cluster: c.Cluster, DialTimeout: c.DialTimeout,
		RequestTimeout: c.RequestTimeout, TLS: c.TLS, Rights: needs,
		MinReplicas: c.MinReplicas,
	})
	if err != nil {
		return nil, err
	}
	return &BullMQ{Server: server, config: c, opening: opening, changed: make(chan struct{})}, nil
}

// Partitions implements [sink.Driver].
func (d *BullMQ) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *BullMQ) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each queue is asked by itself.
func (d *BullMQ) Node(topic string, _ int32) int32 {
	_, node := d.queueOf(topic)
	return node
}

// Changed implements [sink.Driver].
func (d *BullMQ) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *BullMQ) Limits(string) (batch, record int) { return batchLimit, recordLimit }

// Size implements [sink.Driver].
func (d *BullMQ) Size(r *sink.Record) int { return sizeOfJob(r) }

// Produce implements [sink.Driver].
func (d *BullMQ) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	q := d.queues.At(node)
	q.log.Produce(ctx, q, batches)
}

// Left implements [sink.Leaver].
func (d *BullMQ) Left() {
	for _, q := range d.queues.All() {
		q.log.Forget()
	}
}

// Recognize implements [sink.Recognizer].
func (d *BullMQ) Recognize(ours func(source string) bool) { d.outboxes.Recognize(ours) }

// Unclaimed implements [sink.Recognizer].
func (d *BullMQ) Unclaimed() (topic string, since time.Time) {
	for _, q := range d.queues.All() {
		conditional.First(&topic, &since, q.name, q.log)
	}
	return topic, since
}

// Examine is [redisconn.Server.Examine], which also reads the end of the queue, "" for none: a user may lack its keys.
func (d *BullMQ) Examine(ctx context.Context, queue string) (text string, risky bool, err error) {
	if text, risky, err = d.Server.Examine(ctx); err == nil && queue != "" {
		q, _ := d.queueOf(queue)
		_, err = q.End(ctx)
	}
	return text, risky, err
}

func (d *BullMQ) queueOf(topic string) (q *queue, node int32) {
	return d.queues.Of(topic, func() *queue {
		q := newQueue(d, topic)
		q.log.WentBack = func(was, is int64) { d.wentBack(topic, was, is) }
		return q
	})
}

// PossibleDuplicates implements [sink.Witness]: there are none.
func (d *BullMQ) PossibleDuplicates() uint64 { return 0 }

// Alarms implements [sink.Witness].
func (d *BullMQ) Alarms() []sink.Alarm { return d.alarms.Alarms() }

func (d *BullMQ) wentBack(topic string, was, is int64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: topic, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("queue %s had taken %d jobs and counts %d now: its counter was deleted, or Redis lost what it "+
			"had acknowledged (appendfsync, a failover). Those events are in the journal as published and will not be sent "+
			"again", topic, was, is),
	}, d.config.Hooks.Alarm)
}

// Word returns the broker's word for a topic.
func (*BullMQ) Word() string { return "queue" }
