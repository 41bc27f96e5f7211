package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

// Tail implements [sink.Tailer].
func (d *StreamDriver) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	c, err := d.dialLeader(ctx, q.Topic)
	if err != nil {
		return errors.Join(sink.ErrUnreachable, err)
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var end wire.Chunk // without entries: they are valid for a moment only
	err = c.Edge(q.Topic, wire.FromLast, func(k wire.Chunk) error {
		end = wire.Chunk{First: k.First, Next: k.Next, Time: k.Time}
		return nil
	})
	if errors.Is(err, wire.NoStream) {
		return nil
	}
	if err != nil {
		return passing(q.Topic, err)
	}
	first := int64(0)
	err = c.Edge(q.Topic, wire.FromFirst, func(k wire.Chunk) error {
		first = k.First
		return nil
	})
	if err != nil {
		return passing(q.Topic, err)
	}
	from := wire.Start{Kind: wire.FromFirst}
	offset, begins := q.From[0]
	if offset > end.Next {
		offset = 0 // the stream was created again, and the offset is one of the stream before
	}
	if end.Next > offset { // else nothing was written since
		q.Lost(first - max(offset, 0))
	}
	if begins {
		from = wire.Start{Kind: wire.FromOffset, Value: max(offset, 0)}
	} else if !q.Since.IsZero() {
		from = wire.Start{Kind: wire.FromTime, Value: q.Since.UnixMilli()}
	}
	if end.Next == 0 || from.Kind == wire.FromOffset && from.Value >= end.Next ||
		from.Kind == wire.FromTime && from.Value > end.Time {
		return nil // nothing stands there, and nothing would come
	}
	var own error // of each
	err = c.ReadUpTo(ctx, q.Topic, from, end.Next-1, func(offset int64, message []byte) error {
		rec := sink.TailRecord{Offset: offset}
		_ = wire.Pick(message, func(name, value []byte) { // what is no message of AMQP 1.0 is not ours
			if string(name) == keyHeader {
				rec.Key = value
			}
			for i, header := range q.Headers {
				if header != "" && string(name) == header {
					rec.Headers[i] = value
				}
			}
		})
		own = each(rec)
		return own
	})
	if err == nil || own != nil {
		return own
	}
	return passing(q.Topic, err)
}

// passing reports that the same question may be answered in a moment, unless this was an answer about the stream.
func passing(stream string, err error) error {
	err = fmt.Errorf("read stream %s back: %w", stream, err)
	if sink.TroubleOf(err, sink.ClusterTrouble) == sink.TopicTrouble {
		return err
	}
	return errors.Join(sink.ErrPassing, err)
}
