package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
)

const consumePatience = 2 * time.Minute

// Consume reads every partition of the topics from its start to what is its end at the call, by a client that is not
// the relay's, and hands over each record: within a partition by rising offset.
func Consume(t testing.TB, addrs []string, topics []string, each func(*kgo.Record)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), consumePatience)
	defer cancel()
	if err := NewReading(addrs, topics).read(ctx, each); err != nil {
		t.Fatalf("consume %s: %v", strings.Join(topics, ", "), err)
	}
}

// Reading reads topics in portions: each from where the one before ended.
type Reading struct {
	addrs, topics []string
	next          map[string]map[int32]int64 // by topic and partition, once read
}

// NewReading begins at the starts of all partitions.
func NewReading(addrs, topics []string) *Reading {
	return &Reading{addrs: addrs, topics: topics, next: make(map[string]map[int32]int64)}
}

// Read is Consume from where the last portion ended.
func (r *Reading) Read(t testing.TB, each func(*kgo.Record)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), consumePatience)
	defer cancel()
	if err := r.read(ctx, each); err != nil {
		t.Fatalf("consume %s: %v", strings.Join(r.topics, ", "), err)
	}
}

func (r *Reading) read(ctx context.Context, each func(*kgo.Record)) error {
	addrs, topics := r.addrs, r.topics
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := listOffsets(ctx, admin.ListStartOffsets, topics)
	if err != nil {
		return fmt.Errorf("list the starts: %w", err)
	}
	ends, err := listOffsets(ctx, admin.ListEndOffsets, topics)
	if err != nil {
		return fmt.Errorf("list the ends: %w", err)
	}
	from := make(map[string]map[int32]kgo.Offset)
	left := make(map[string]map[int32]int64) // the ends of what is not read yet
	open := 0
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if first := max(start.Offset, r.next[end.Topic][end.Partition]); end.Offset > first {
			if from[end.Topic] == nil {
				from[end.Topic], left[end.Topic] = make(map[int32]kgo.Offset), make(map[int32]int64)
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().At(first)
			left[end.Topic][end.Partition] = end.Offset
			open++
		}
		if r.next[end.Topic] == nil {
			r.next[end.Topic] = make(map[int32]int64)
		}
		r.next[end.Topic][end.Partition] = max(end.Offset, r.next[end.Topic][end.Partition])
	})
	if open == 0 {
		return nil
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumePartitions(from),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer reader.Close()
	for open > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			end := left[record.Topic][record.Partition]
			if record.Offset >= end {
				return
			}
			each(record)
			if record.Offset == end-1 {
				open--
			}
		})
	}
	return nil
}

// listOffsets asks until no partition is between two leaders: a new one does not know at once what is in sync, and says
// so (OFFSET_NOT_AVAILABLE, KIP-207).
func listOffsets(
	ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), topics []string,
) (kadm.ListedOffsets, error) {
	for {
		offsets, err := list(ctx, topics...)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil || !kerr.IsRetriable(err) {
			return offsets, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Follower reads topics while they grow.
type Follower struct {
	client *kgo.Client
	done   chan struct{}

	mu      sync.Mutex
	count   int   // records so far; guarded by mu
	failure error // guarded by mu
}

// Follow hands over each record of the topics, from their starts, as it comes, from one goroutine, until the test ends
// or Close.
func Follow(t testing.TB, addrs []string, topics []string, each func(*kgo.Record)) *Follower {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	f := &Follower{client: client, done: make(chan struct{})}
	go f.run(each)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("follow %s: %v", strings.Join(topics, ", "), err)
		}
	})
	return f
}

func (f *Follower) run(each func(*kgo.Record)) {
	defer close(f.done)
	for {
		fetches := f.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		n := 0
		fetches.EachRecord(func(r *kgo.Record) {
			each(r)
			n++
		})
		f.mu.Lock()
		f.count += n
		if err := fetches.Err(); err != nil && f.failure == nil {
			f.failure = err
		}
		f.mu.Unlock()
	}
}

// Count is the number of records handed over so far.
func (f *Follower) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Close ends it; the function that takes the records is not called after that. The error is the first of a fetch.
func (f *Follower) Close() error {
	f.client.Close()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// Header is the value of a record's header, nil if there is none.
func Header(r *kgo.Record, key string) []byte {
	for _, header := range r.Headers {
		if header.Key == key {
			return header.Value
		}
	}
	return nil
}

// Seen turns a record of the relay into what the judge takes.
func Seen(r *kgo.Record) verify.Record {
	return verify.Record{
		ID: string(Header(r, "id")), Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key,
		Value:   verify.DigestOf(r.Value),
		Headers: headersOf(r),
		Late:    Header(r, "x-outbox-late") != nil || Header(r, "x-outbox-replay") != nil,
	}
}

// headersOf is the digest of the headers whose values follow from the row alone; see Truth.
func headersOf(r *kgo.Record) verify.Digest {
	created := string(Header(r, "created_at"))
	if at, err := time.Parse(time.RFC3339Nano, created); err == nil {
		created = at.UTC().Format(createdForm)
	}
	return headersDigest(string(Header(r, "event_type")), string(Header(r, "aggregate_type")), created,
		string(Header(r, "traceparent")))
}

const createdForm = "2006-01-02T15:04:05.000000Z"

func headersDigest(eventType, aggregateType, created, trace string) verify.Digest {
	return verify.DigestOf([]byte(strings.Join([]string{eventType, aggregateType, created, trace}, "\n")))
}

// DeleteTopic deletes a topic and waits until the broker says so; one that is not there is fine.
func DeleteTopic(t testing.TB, addrs []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(client).DeleteTopic(ctx, topic); err != nil &&
		!errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete topic %s: %v", topic, err)
	}
}
