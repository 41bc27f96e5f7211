package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	batchLimit  = 1 << 20  // bytes, so that an answer does not take long
	recordLimit = 16 << 20 // Redis takes 512 MB (proto-max-bulk-len), which holds up everybody else
)

// Streams appends to streams. Make it with NewStreams.
type Streams struct {
	*redisconn.Server
	config  StreamsConfig
	changed chan struct{} // never closed: streams exist as soon as something is added
	alarms  sink.AlarmBook
	streams sink.Nodes[*stream]

	outboxes conditional.Outboxes
}

var (
	_ sink.Driver   = (*Streams)(nil)
	_ sink.Deferrer = (*Streams)(nil)
	_ sink.Witness  = (*Streams)(nil)
	_ sink.Leaver   = (*Streams)(nil)

	_ sink.Recognizer = (*Streams)(nil)
)

// NewStreams makes a driver. It connects when it is used, and asks the server every two seconds whether it is there.
func NewStreams(c StreamsConfig) (*Streams, error) {
	needs := streamRights
	if c.MinReplicas > 0 {
		needs += rightsToKeep
	}
	server, err := redisconn.Open(redisconn.Config{
		URL: c.URL, PasswordFile: c.PasswordFile, Sentinel: c.Sentinel, Cluster: c.Cluster, DialTimeout: c.DialTimeout,
		RequestTimeout: c.RequestTimeout, TLS: c.TLS, Rights: needs,
		MinReplicas: c.MinReplicas,
	})
	if err != nil {
		return nil, err
	}
	return &Streams{Server: server, config: c, changed: make(chan struct{})}, nil
}

// Partitions implements [sink.Driver].
func (d *Streams) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *Streams) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each stream is asked by itself.
func (d *Streams) Node(topic string, _ int32) int32 {
	_, node := d.streamOf(topic)
	return node
}

// Changed implements [sink.Driver].
func (d *Streams) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Streams) Limits(string) (batch, record int) { return batchLimit, recordLimit }

// Size implements [sink.Driver].
func (d *Streams) Size(r *sink.Record) int { return sizeOfEntry(r) }

// Produce implements [sink.Driver].
func (d *Streams) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	s := d.streams.At(node)
	s.log.Produce(ctx, s, batches)
}

// Left implements [sink.Leaver].
func (d *Streams) Left() {
	for _, s := range d.streams.All() {
		s.log.Forget()
	}
}

// Recognize implements [sink.Recognizer].
func (d *Streams) Recognize(ours func(source string) bool) { d.outboxes.Recognize(ours) }

// Unclaimed implements [sink.Recognizer].
func (d *Streams) Unclaimed() (topic string, since time.Time) {
	for _, s := range d.streams.All() {
		conditional.First(&topic, &since, s.key, s.log)
	}
	return topic, since
}

// Examine is [redisconn.Server.Examine], which also reads the end of the stream, "" for none: a user may lack its key.
func (d *Streams) Examine(ctx context.Context, stream string) (text string, risky bool, err error) {
	if text, risky, err = d.Server.Examine(ctx); err == nil && stream != "" {
		s, _ := d.streamOf(stream)
		_, err = s.End(ctx)
	}
	return text, risky, err
}

func (d *Streams) streamOf(topic string) (s *stream, node int32) {
	return d.streams.Of(topic, func() *stream {
		s := &stream{driver: d, key: topic, log: conditional.NewLog(&d.outboxes)}
		s.log.WentBack = func(was, is int64) { d.wentBack(topic, was, is) }
		return s
	})
}

// PossibleDuplicates implements [sink.Witness]: there are none.
func (d *Streams) PossibleDuplicates() uint64 { return 0 }

// Alarms implements [sink.Witness].
func (d *Streams) Alarms() []sink.Alarm { return d.alarms.Alarms() }

func (d *Streams) wentBack(topic string, was, is int64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: topic, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("stream %s ends at %s and had acknowledged %s: it was deleted, or Redis lost what it had "+
			"acknowledged (appendfsync, "+
			"a failover). Those events are in the journal as published and will not be sent again; verify names them", topic,
			idOf(is), idOf(was)),
	}, d.config.Hooks.Alarm)
}

// Word returns the broker's word for a topic.
func (*Streams) Word() string { return "stream" }
