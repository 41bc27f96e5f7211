package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

const (
	tailFetchBytes = 4 << 20
	tailWait       = 100 * time.Millisecond
	// tailEmpty is how many fetches may bring nothing before the rest is taken for records that no consumer gets, such as
	// the markers of other producers' transactions.
	tailEmpty = 5
)

var (
	_ sink.Tailer = (*Driver)(nil)
	_ sink.Ender  = (*Driver)(nil)

	_ sink.Clustered = (*Driver)(nil)
)

// tailClient is a client for one topic. Its transport routes by the library's own cache.
func (d *Driver) tailClient(topic string) (client *kafkago.Client, done func()) {
	transport := d.dialer.Lines(func() *kafkago.Transport {
		t := d.dialer.Transport()
		t.MetadataTopics = []string{topic}
		t.MetadataTTL = time.Second
		return t
	})
	return &kafkago.Client{Addr: kafkago.TCP(d.config.Brokers...), Transport: transport,
		Timeout: d.config.RequestTimeout}, transport.CloseIdleConnections
}

// ClusterID is [sink.Clustered].
func (d *Driver) ClusterID(ctx context.Context) (string, error) {
	c, err := d.Ping(ctx)
	return c.ID, err
}

// topicsAtOnce is how many topics one request for ids names.
const topicsAtOnce = 1000

// TopicIDs is [sink.Clustered].
func (d *Driver) TopicIDs(ctx context.Context, topics []string) (map[string]string, error) {
	ids := make(map[string]string, len(topics))
	for some := range slices.Chunk(topics, topicsAtOnce) {
		answer, err := d.ask(ctx, &connect.TopicIDs{ClientID: d.config.ClientID, Topics: some})
		if err != nil {
			return nil, fmt.Errorf("ask for the ids of topics: %w", err)
		}
		maps.Copy(ids, answer.(*connect.TopicIDs).IDs)
	}
	return ids, nil
}

// Ends is [sink.Ender].
func (d *Driver) Ends(ctx context.Context, topic string) (map[int32]int64, error) {
	client, done := d.tailClient(topic)
	defer done()
	answer, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("ask for topic %q: %w", topic, err)
	}
	var ends map[int32]int64
	for _, t := range answer.Topics {
		if t.Name != topic || errors.Is(t.Error, kafkago.UnknownTopicOrPartition) {
			continue
		}
		if t.Error != nil {
			return nil, fmt.Errorf("topic %q: %w", topic, t.Error)
		}
		ends = map[int32]int64{}
		for _, p := range t.Partitions {
			_, end, _, err := tailBounds(ctx, client, sink.TailQuery{Topic: topic}, p.ID)
			if err != nil {
				return nil, fmt.Errorf("topic %q, partition %d: %w", topic, p.ID, err)
			}
			ends[int32(p.ID)] = end
		}
	}
	return ends, nil
}

// Tail is [sink.Tailer].
func (d *Driver) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	client, done := d.tailClient(q.Topic)
	defer done()

	answer, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{q.Topic}})
	if err != nil {
		return fmt.Errorf("ask for topic %q: %w: %w", q.Topic, sink.ErrUnreachable, err)
	}
	var problems []error
	for _, t := range answer.Topics {
		switch {
		case t.Name != q.Topic:
		case errors.Is(t.Error, kafkago.UnknownTopicOrPartition):
		case t.Error != nil:
			problems = append(problems, passing(fmt.Errorf("topic %q: %w", q.Topic, t.Error)))
		default:
			for _, p := range t.Partitions {
				if err := tailPartition(ctx, client, q, p.ID, each); err != nil {
					problems = append(problems, passing(fmt.Errorf("topic %q, partition %d: %w", q.Topic, p.ID, err)))
				}
			}
		}
	}
	return errors.Join(problems...)
}

// passing marks what is wrong for a moment only: a leader that moves, a connection that breaks. A code that the client
// does not take for temporary is an answer.
func passing(err error) error {
	if code, answered := errors.AsType[kafkago.Error](err); answered && !code.Temporary() && !leaderless(code) {
		return err
	}
	return fmt.Errorf("%w: %w", sink.ErrPassing, err)
}

// leaderless are codes of a partition whose leader is another one or does not know of it yet, beside those that are
// temporary.
func leaderless(code kafkago.Error) bool {
	switch code {
	case kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition, kafkago.ReplicaNotAvailable, kafkago.FencedLeaderEpoch,
		kafkago.UnknownLeaderEpoch, kafkago.OffsetNotAvailable:
		return true
	}
	return false
}

// tailPartition reads one partition from its start to its present end.
func tailPartition(ctx context.Context, client *kafkago.Client, q sink.TailQuery, id int,
	each func(sink.TailRecord) error) error {
	next, end, lost, err := tailBounds(ctx, client, q, id)
	if err != nil {
		return err
	}
	there := next // offsets up to here were counted
	hand := func(rec sink.TailRecord) error {
		lost += rec.Offset - there
		there = rec.Offset + 1
		return each(rec)
	}
	for empty := 0; next < end && empty < tailEmpty; {
		r, err := client.Fetch(ctx, &kafkago.FetchRequest{Topic: q.Topic, Partition: id, Offset: next, MinBytes: 1,
			MaxBytes: tailFetchBytes, MaxWait: tailWait})
		if err == nil {
			err = r.Error
		}
		if err != nil {
			return fmt.Errorf("fetch from offset %d: %w", next, err)
		}
		got, err := tailRecords(r.Records, q, id, next, end, hand)
		if err != nil {
			return err
		}
		if got == next {
			empty++
		} else {
			empty = 0
		}
		next = got
	}
	q.Lost(lost + max(end-there, 0))
	return nil
}

// tailRecords hands out the records of one answer and says which offset comes next.
func tailRecords(records kafkago.RecordReader, q sink.TailQuery, id int, next, end int64,
	each func(sink.TailRecord) error) (int64, error) {
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return next, nil
		}
		if err != nil {
			return next, fmt.Errorf("read behind offset %d: %w", next, err)
		}
		key, err := protocol.ReadAll(rec.Key)
		closeBytes(rec.Key)
		closeBytes(rec.Value)
		if err != nil {
			return next, fmt.Errorf("read the key at offset %d: %w", rec.Offset, err)
		}
		if rec.Offset < next || rec.Offset >= end { // a batch may begin before the offset asked for
			continue
		}
		next = rec.Offset + 1
		out := sink.TailRecord{Partition: int32(id), Offset: rec.Offset, Key: key}
		for _, h := range rec.Headers {
			for i, name := range q.Headers {
				if name != "" && h.Key == name {
					out.Headers[i] = h.Value
				}
			}
		}
		if err := each(out); err != nil {
			return next, err
		}
	}
}

func closeBytes(b protocol.Bytes) {
	if b != nil {
		b.Close()
	}
}

// tailBounds are the partition's start and end, and the most records that it has lost before the start. An offset that
// the log no longer has, or does not have yet, starts at what it has.
func tailBounds(ctx context.Context, client *kafkago.Client, q sink.TailQuery, id int) (
	next, end, lost int64, err error,
) {
	requests := []kafkago.OffsetRequest{kafkago.FirstOffsetOf(id), kafkago.LastOffsetOf(id)}
	from, known := q.From[int32(id)]
	if !known && !q.Since.IsZero() {
		requests = append(requests, kafkago.TimeOffsetOf(id, q.Since))
	}
	first, at := int64(0), int64(-1)
	// One request each: an answer cannot hold two offsets of one partition.
	for i, request := range requests {
		answer, err := client.ListOffsets(ctx,
			&kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{q.Topic: {request}}})
		if err != nil {
			return 0, 0, 0, fmt.Errorf("ask for offsets: %w", err)
		}
		for _, o := range answer.Topics[q.Topic] {
			if o.Error != nil {
				return 0, 0, 0, fmt.Errorf("ask for offsets: %w", o.Error)
			}
			switch i {
			case 0:
				first = o.FirstOffset
			case 1:
				end = o.LastOffset
			default:
				for offset := range o.Offsets {
					at = offset
				}
			}
		}
	}
	switch {
	case known && from > end:
		// The topic was created again, or lost its end, and the offset is one of the log before. Our records may be
		// anywhere in this one.
		return first, end, 0, nil
	case known:
		return max(from, first), end, max(first-from, 0), nil
	case q.Since.IsZero():
		return first, end, first, nil
	case at < 0: // nothing as young as that, any more
		return end, end, first, nil
	case at <= first: // what stood before it may have been as young
		return first, end, first, nil
	}
	return at, end, 0, nil
}
