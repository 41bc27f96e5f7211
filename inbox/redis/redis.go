// Package redis lets an inbox read Redis Streams. It is separate from package inbox so that consumers of Kafka do not
// link the client of Redis.
//
//	client := redis.NewClient(&redis.Options{Addr: "redis:6379"})
//	c, err := inbox.New(pool, inbox.Config{Name: "billing", Source: redisinbox.Streams(client, "outbox.event.order")})
//
// A stream is read in order by one process at a time, from the position in the database. There is no consumer group,
// because its members would break the order of keys, and nothing is deleted: trim streams by age or length.
package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// Fields of an entry beside the event's headers.
const (
	keyField       = "key"
	payloadField   = "payload"
	tombstoneField = "x-outbox-tombstone"
	renamed        = "header:" // before the name of a header that is one of these
)

// Streams returns a source that reads streams. The caller owns the client.
func Streams(c client.UniversalClient, streams ...string) inbox.Source { return &streamsOf{c, streams} }

type streamsOf struct {
	client  client.UniversalClient
	streams []string
}

func (s *streamsOf) System() string   { return "redis" }
func (s *streamsOf) Topics() []string { return s.streams }
func (s *streamsOf) Queue() bool      { return false }

func (s *streamsOf) Problem() error {
	switch {
	case s.client == nil:
		return errors.New("the client is nil: make one with redis.NewClient")
	case len(s.streams) == 0 || slices.Contains(s.streams, ""):
		return errors.New("no stream is named, or one has an empty name")
	}
	return nil
}

func (s *streamsOf) Open(_ context.Context, name string) (source.Topic, error) {
	return &stream{name: name, client: s.client}, nil
}

type stream struct {
	name   string
	client client.UniversalClient
	next   int64
}

const (
	most = 500
	wait = 500 * time.Millisecond // the client does not cut a waiting read off
)

// Bounds cannot tell how many entries lie behind one: beyond those that were read it estimates by their time.
func (t *stream) Bounds(ctx context.Context, next int64) (b source.Bounds, err error) {
	b.End = source.Unknown // offsets are no count
	info, err := t.client.XInfoStream(ctx, t.name).Result()
	if err != nil {
		if !strings.Contains(err.Error(), "no such key") {
			return b, fmt.Errorf("look at stream %s: %w", t.name, err)
		}
		if next > 0 { // it was deleted. Ids are times, so the next one's are behind it
			b.First, b.Lost = next, source.Unknown
		}
		return b, nil
	}
	last, err := offsetOf(info.LastGeneratedID)
	if err != nil {
		return b, fmt.Errorf("look at stream %s: %w", t.name, err)
	}
	first := last + 1
	if info.FirstEntry.ID != "" {
		if first, err = offsetOf(info.FirstEntry.ID); err != nil {
			return b, fmt.Errorf("look at stream %s: %w", t.name, err)
		}
	}
	b.First, b.Back = first, last < next-1
	b.Unread = unread(info.Length, first, last, next)
	if b.Back || next == 0 || last < next || info.EntriesAdded == info.Length && info.MaxDeletedEntryID == "0-0" {
		return b, nil
	}
	there, err := t.client.XRange(ctx, t.name, idOf(next-1), idOf(next-1)).Result()
	if err != nil {
		return b, fmt.Errorf("look at stream %s: %w", t.name, err)
	}
	// What is trimmed goes from the front: while the last one that was read is there, nothing behind it was.
	deleted, err := offsetOf(info.MaxDeletedEntryID)
	if len(there) == 0 || err == nil && deleted >= next {
		b.Lost, b.First = source.Unknown, max(first, next)
	}
	return b, nil
}

func unread(length, first, last, next int64) int64 {
	switch {
	case next > last:
		return 0
	case next <= first:
		return length
	}
	left, all := float64(last>>seqBits-next>>seqBits), float64(last>>seqBits-first>>seqBits)
	return max(1, int64(float64(length)*left/max(all, 1)))
}

func (t *stream) Seek(_ context.Context, next int64) error {
	t.next = next
	return nil
}

func (t *stream) Next(ctx context.Context) ([]*kgo.Record, error) {
	for {
		read, err := t.client.XRead(ctx, &client.XReadArgs{
			Streams: []string{t.name, idOf(max(t.next-1, 0))}, Count: most, Block: wait,
		}).Result()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, client.Nil):
			continue
		case err != nil:
			return nil, fmt.Errorf("read stream %s: %w", t.name, err)
		}
		var records []*kgo.Record
		for _, entry := range read[0].Messages {
			r, err := t.record(entry)
			if err != nil {
				return nil, err
			}
			records = append(records, r)
			t.next = r.Offset + 1
		}
		return records, nil
	}
}

// record undoes what the relay does to make an entry.
func (t *stream) record(entry client.XMessage) (r *kgo.Record, err error) {
	r = &kgo.Record{Topic: t.name}
	if r.Offset, err = offsetOf(entry.ID); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", t.name, err)
	}
	r.Timestamp = time.UnixMilli(r.Offset >> seqBits)
	for _, name := range slices.Sorted(maps.Keys(entry.Values)) {
		value := []byte(fmt.Sprint(entry.Values[name]))
		switch name {
		case keyField:
			r.Key = value
		case payloadField:
			r.Value = value
		case tombstoneField:
		default:
			if plain, was := strings.CutPrefix(name, renamed); was {
				switch plain {
				case keyField, payloadField, tombstoneField:
					name = plain
				}
			}
			source.Set(r, name, value)
		}
	}
	return r, nil
}

// Settle has nothing to do.
func (t *stream) Settle(int64, []int64) error { return nil }

func (t *stream) Close() {}

// seqBits is how many bits of an offset are the second part of an id, in the relay's journal, too.
const seqBits = 22

func offsetOf(id string) (int64, error) {
	first, second, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(first, 10, 64)
	if err != nil || ms < 0 || ms >= 1<<(63-seqBits) {
		return 0, fmt.Errorf("the id %q has no time that an offset can hold", id)
	}
	seq, err := strconv.ParseInt(second, 10, 64)
	if err != nil || seq < 0 || seq >= 1<<seqBits {
		return 0, fmt.Errorf("the id %q has a second part that an offset cannot hold (%d bits)", id, seqBits)
	}
	return ms<<seqBits | seq, nil
}

func idOf(offset int64) string {
	return strconv.FormatInt(offset>>seqBits, 10) + "-" + strconv.FormatInt(offset&(1<<seqBits-1), 10)
}
