package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

const (
	readersAtOnce = 4                // partitions read side by side
	readPatience  = 10 * time.Second // without a record although the log goes on: it is said, and the rest left
	fetchBytes    = 4 << 20
)

// topicReader reads the topics that rows can be in, each partition from its beginning, in portions.
type topicReader struct {
	cfg      config.Config
	client   *kafkago.Client
	dialer   *kafkago.Dialer // the readers'
	idHeader string
	payload  string                     // type of the payload column
	source   string                     // of our records; empty when the relay has never run
	topics   map[string][]*partitionEnd // by topic; nil for one that does not exist
	notes    []string
}

// partitionEnd is how far one partition was read.
type partitionEnd struct {
	topic     string
	partition int
	first     int64  // the log's first offset when the audit began
	next      int64  // to be read next
	end       int64  // the log's end when this portion began
	note      string // what a person should know about the reading
}

// said are the notes of the whole reading.
func (r *topicReader) said() []string {
	notes := slices.Clone(r.notes)
	for _, ends := range r.topics {
		for _, p := range ends {
			if p.note != "" {
				notes = append(notes, p.note)
			}
		}
	}
	slices.Sort(notes)
	return notes
}

func newTopicReader(ctx context.Context, cfg config.Config, st *store.Store) (*topicReader, error) {
	state, err := st.State(ctx)
	if err != nil {
		return nil, err
	}
	table, err := st.Outbox(ctx)
	if err != nil {
		return nil, err
	}
	dialer, client, err := kafkaClients(cfg)
	if err != nil {
		return nil, err
	}
	r := &topicReader{
		cfg: cfg, idHeader: cfg.Message.HeaderNames()[0], payload: table.PayloadType, topics: map[string][]*partitionEnd{},
		dialer: dialer, client: client,
	}
	if state != nil {
		r.source = outbox.Source(state.SystemID, state.Timeline, state.Source)
	}
	return r, nil
}

func (r *topicReader) close() {
	r.client.Transport.(*kafkago.Transport).CloseIdleConnections()
}

// follow makes the topic one that is read.
func (r *topicReader) follow(ctx context.Context, topic string) error {
	if _, known := r.topics[topic]; known {
		return nil
	}
	answer, err := r.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return fmt.Errorf("ask for topic %s: %w", topic, err)
	}
	r.topics[topic] = nil
	if len(answer.Topics) == 0 || errors.Is(answer.Topics[0].Error, kafkago.UnknownTopicOrPartition) {
		r.notes = append(r.notes, fmt.Sprintf("there is no topic %s", topic))
		return nil
	}
	if answer.Topics[0].Error != nil {
		return fmt.Errorf("ask for topic %s: %w", topic, answer.Topics[0].Error)
	}
	var ends []*partitionEnd
	for _, p := range answer.Topics[0].Partitions {
		ends = append(ends, &partitionEnd{topic: topic, partition: p.ID})
	}
	slices.SortFunc(ends, func(a, b *partitionEnd) int { return a.partition - b.partition })
	err = r.ask(ctx, topic, ends, kafkago.FirstOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) { p.first, p.next = o.FirstOffset, o.FirstOffset })
	if err != nil {
		return err
	}
	r.topics[topic] = ends
	return nil
}

func (r *topicReader) ask(ctx context.Context, topic string, ends []*partitionEnd, which func(int) kafkago.OffsetRequest, take func(*partitionEnd, kafkago.PartitionOffsets)) error {
	var requests []kafkago.OffsetRequest
	for _, p := range ends {
		requests = append(requests, which(p.partition))
	}
	answer, err := r.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: requests}})
	if err != nil {
		return fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
	}
	for _, o := range answer.Topics[topic] {
		if o.Error != nil {
			return fmt.Errorf("ask for the offsets of topic %s, partition %d: %w", topic, o.Partition, o.Error)
		}
		for _, p := range ends {
			if p.partition == o.Partition {
				take(p, o)
			}
		}
	}
	return nil
}

// begin is the first offset that the partition still has; 0 when there is no such partition.
func (r *topicReader) begin(ctx context.Context, topic string, partition int32) (int64, error) {
	if err := r.follow(ctx, topic); err != nil {
		return 0, err
	}
	for _, p := range r.topics[topic] {
		if p.partition == int(partition) {
			return p.first, nil
		}
	}
	return 0, nil
}

// readOn reads all topics from where the last portion ended to their present ends.
func (r *topicReader) readOn(ctx context.Context, t *truth) error {
	var work []*partitionEnd
	var total int64
	for topic, ends := range r.topics {
		if len(ends) == 0 {
			continue
		}
		if err := r.ask(ctx, topic, ends, kafkago.LastOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) { p.end = o.LastOffset }); err != nil {
			return err
		}
		for _, p := range ends {
			if p.next < p.end {
				work = append(work, p)
				total += p.end - p.next
			}
		}
	}
	records := make(chan verify.Record, 1024)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readersAtOnce)
	failed := make(chan error, 1)
	go func() {
		for _, p := range work {
			group.Go(func() error { return r.readPartition(groupCtx, p, records) })
		}
		failed <- group.Wait()
		close(records)
	}()
	seen := int64(0)
	const tellEvery = 5_000
	for record := range records {
		t.seen(record)
		if seen++; seen%tellEvery == 0 {
			t.tell(fmt.Sprintf("%d of %d records read (%d %%)", seen, total, seen*100/total))
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	return nil
}

// readPartition reads up to the end that was found. A log can end in offsets that have no record any more; after a while
// without one the rest is taken to be that, and said.
func (r *topicReader) readPartition(ctx context.Context, p *partitionEnd, records chan<- verify.Record) error {
	reader := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: r.cfg.Kafka.Brokers, Topic: p.topic, Partition: p.partition, MinBytes: 1, MaxBytes: fetchBytes,
		MaxWait: 250 * time.Millisecond, Dialer: r.dialer,
	})
	defer func() { _ = reader.Close() }()
	if err := reader.SetOffset(p.next); err != nil {
		return fmt.Errorf("read topic %s, partition %d: %w", p.topic, p.partition, err)
	}
	for p.next < p.end {
		patience, cancel := context.WithTimeout(ctx, readPatience)
		m, err := reader.ReadMessage(patience)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			p.note = fmt.Sprintf("topic %s, partition %d: no record came from offset %d to its end at %d", p.topic, p.partition, p.next, p.end)
			p.next = p.end
			return nil
		default:
			return fmt.Errorf("read topic %s, partition %d at offset %d: %w", p.topic, p.partition, p.next, err)
		}
		p.next = m.Offset + 1
		if record, ours := r.record(m); ours {
			select {
			case records <- record:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// record takes from a message what the judge needs; false for one of another relay.
func (r *topicReader) record(m kafkago.Message) (verify.Record, bool) {
	record := verify.Record{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: verify.DigestOf(payloadOf(r.cfg.Message.Format, r.payload, m.Value))}
	for _, h := range m.Headers {
		switch h.Key {
		case r.idHeader:
			record.ID = string(h.Value)
		case "x-outbox-late", "x-outbox-replay":
			record.Late = true
		case "x-outbox-source":
			if r.source != "" && !outbox.SameSource(string(h.Value), r.source) {
				return record, false
			}
		}
	}
	return record, true
}
