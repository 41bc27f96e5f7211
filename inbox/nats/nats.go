// Package nats lets an inbox read subjects of NATS JetStream. It is separate from package inbox so that consumers of
// Kafka do not link the client of NATS.
//
//	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
//	c, err := inbox.New(pool, inbox.Config{Name: "billing", Source: natsinbox.Subjects(nc, "outbox.event.order")})
//
// A subject is read in stream order by one process at a time, from the position in the database; the server has only a
// short-lived consumer. So the stream must keep messages that were read (retention limits). Wildcards are not
// supported.
package nats

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// Headers of the relay's messages beside the event's, and the prefix of the server's own.
const (
	keyHeader       = "x-outbox-key"
	keyBase64Header = "x-outbox-key-base64"
	tombstoneHeader = "x-outbox-tombstone"
	serverPrefix    = "Nats-"
)

// Subjects returns a source that reads subjects, each of one stream. The caller owns the connection, which must
// reconnect by itself: use nats.MaxReconnects(-1).
func Subjects(nc *client.Conn, subjects ...string) inbox.Source { return &subjectsOf{nc, subjects} }

type subjectsOf struct {
	nc       *client.Conn
	subjects []string
}

func (s *subjectsOf) System() string   { return "nats" }
func (s *subjectsOf) Topics() []string { return s.subjects }
func (s *subjectsOf) Queue() bool      { return false }

func (s *subjectsOf) Problem() error {
	if s.nc == nil {
		return errors.New("the connection is nil: make one with nats.Connect")
	}
	if len(s.subjects) == 0 {
		return errors.New("no subject is named")
	}
	for _, name := range s.subjects {
		if name == "" || strings.ContainsAny(name, "*> \t\r\n") {
			return fmt.Errorf("the subject %q is empty or has wildcards or blanks: name each subject", name)
		}
	}
	return nil
}

// subject is one of a stream.
type subject struct {
	name     string
	stream   jetstream.Stream
	js       jetstream.JetStream
	consumer jetstream.Consumer // nil before Seek
	messages jetstream.MessagesContext
}

func (s *subjectsOf) Open(ctx context.Context, name string) (source.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	js, err := jetstream.New(s.nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	stream, err := js.StreamNameBySubject(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("find the stream of subject %s: %w", name, err)
	}
	t := &subject{name: name, js: js}
	if t.stream, err = js.Stream(ctx, stream); err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if kept := t.stream.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("stream %s of subject %s has the retention %s, and deletes messages that the inbox would "+
			"need again: make a stream with the retention limits that has it as its source", stream, name, kept)
	}
	return t, nil
}

// patience is for what NATS's client asks for without a time of its own.
const patience = 10 * time.Second

func (t *subject) Bounds(ctx context.Context, next int64) (b source.Bounds, err error) {
	info, err := t.stream.Info(ctx)
	if err != nil {
		return b, fmt.Errorf("look at the stream of subject %s: %w", t.name, err)
	}
	last, err := t.stream.GetLastMsgForSubject(ctx, t.name)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return b, fmt.Errorf("look for the last message of subject %s: %w", t.name, err)
	}
	first, end := int64(info.State.FirstSeq), int64(info.State.LastSeq)+1
	b = source.Bounds{ID: info.Created.UTC().Format(time.RFC3339Nano), First: max(first, 1), End: end,
		Unread: source.Unknown, Back: end < next}
	if last != nil {
		b.End = int64(last.Sequence) + 1
	}
	switch read := last != nil && b.End <= next; {
	case next == 0 || first <= next || read: // the last one of the subject was read, and is there
	case len(info.Config.Subjects) == 1 && info.Config.Subjects[0] == t.name:
		b.Lost = first - next
	default: // they may be of other subjects
		b.Lost = source.Unknown
	}
	switch {
	case last == nil || b.End <= next:
		b.Unread = 0
	case t.consumer != nil:
		about, err := t.consumer.Info(ctx)
		if err != nil {
			return b, fmt.Errorf("ask how much of subject %s is unread: %w", t.name, err)
		}
		b.Unread = max(1, int64(about.NumPending))
	}
	return b, nil
}

func (t *subject) Seek(ctx context.Context, next int64) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t.consumer, err = t.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{t.name}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: uint64(max(next, 1)), InactiveThreshold: time.Minute, //nolint:gosec // not negative
	})
	if err != nil {
		return fmt.Errorf("read subject %s: %w", t.name, err)
	}
	if t.messages, err = t.consumer.Messages(); err != nil {
		return fmt.Errorf("read subject %s: %w", t.name, err)
	}
	return nil
}

func (t *subject) Next(ctx context.Context) ([]*kgo.Record, error) {
	m, err := t.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("read subject %s: %w", t.name, err)
	}
	about, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read subject %s: %w", t.name, err)
	}
	r := record(m.Headers(), m.Data())
	r.Topic, r.Offset, r.Timestamp = t.name, int64(about.Sequence.Stream), about.Timestamp //nolint:gosec // 63 bits
	return []*kgo.Record{r}, nil
}

// record undoes what the relay does to make a message.
func record(headers client.Header, data []byte) *kgo.Record {
	r := &kgo.Record{Value: data}
	if r.Value == nil {
		r.Value = []byte{}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			switch {
			case name == tombstoneHeader:
				r.Value = nil
			case name == keyHeader:
				r.Key = []byte(value)
			case name == keyBase64Header:
				if key, err := base64.StdEncoding.DecodeString(value); err == nil {
					r.Key = key
				}
			case !strings.HasPrefix(name, serverPrefix):
				source.Set(r, name, []byte(value))
			}
		}
	}
	return r
}

// Settle has nothing to do.
func (t *subject) Settle(int64, []int64) error { return nil }

func (t *subject) Close() {
	if t.messages == nil {
		return
	}
	t.messages.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if info := t.consumer.CachedInfo(); info != nil { // else the server forgets it after a minute
		_ = t.stream.DeleteConsumer(ctx, info.Name)
	}
}
