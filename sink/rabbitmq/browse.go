package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

var _ sink.Browser = (*StreamDriver)(nil)

// Extent implements [sink.Browser].
func (d *StreamDriver) Extent(ctx context.Context, topic string) (e sink.Extent, err error) {
	c, err := d.dialLeader(ctx, topic)
	if err != nil {
		return e, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	err = c.Edge(topic, wire.FromFirst, func(k wire.Chunk) error {
		if e.First = k.First; e.First > 0 {
			e.Oldest = time.UnixMilli(k.Time)
		}
		return nil
	})
	if errors.Is(err, wire.NoStream) {
		return sink.Extent{}, nil
	}
	if err == nil {
		err = c.Edge(topic, wire.FromLast, func(k wire.Chunk) error {
			e.Next = k.Next
			return nil
		})
	}
	if err != nil {
		return e, fmt.Errorf("ask for stream %s: %w", topic, err)
	}
	e.Exists = true
	return e, nil
}

// Browse implements [sink.Browser].
func (d *StreamDriver) Browse(
	ctx context.Context, topic string, from, before int64, each func(sink.Stored) error,
) error {
	if from >= before {
		return nil
	}
	c, err := d.dialLeader(ctx, topic)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	start := wire.Start{Kind: wire.FromOffset, Value: max(from, 0)}
	err = c.ReadUpTo(ctx, topic, start, before-1, func(offset int64, message []byte) error {
		return each(stored(offset, message))
	})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", topic, err)
	}
	return nil
}

// stored converts a message of appendMessage back to its record. Of anything but a message of AMQP 1.0, another
// writer's, only the offset is known.
func stored(offset int64, message []byte) sink.Stored {
	s := sink.Stored{Offset: offset}
	s.Value, _ = wire.Body(message)
	_ = wire.Pick(message, func(name, value []byte) {
		switch string(name) {
		case keyHeader:
			s.Key = value
		case tombstoneHeader:
			s.Value = nil
		}
	})
	s.Headers = func(yield func(string, []byte) bool) {
		more := true
		_ = wire.Pick(message, func(name, value []byte) {
			more = more && yield(string(name), value)
		})
	}
	return s
}
