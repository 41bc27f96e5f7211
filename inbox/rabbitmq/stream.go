package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// stream is read by AMQP 0-9-1. The server tells neither which stream it is nor where it ends, so reading begins with
// the message before the position: if that does not come, nor a later one, the stream is another one.
type stream struct {
	reader
	next  int64
	early []amqp.Delivery // came while Seek waited
	back  bool            // Seek has found that the stream ends below its position; guarded by its end
}

// sendWait is how long the server may take to send what it has.
const sendWait = 5 * time.Second

func (s *stream) Bounds(ctx context.Context, next int64) (b source.Bounds, err error) {
	b = source.Bounds{End: source.Unknown, Unread: source.Unknown, Back: s.back}
	now, err := s.look()
	if err != nil {
		return b, err
	}
	first, found, err := s.edge(ctx, "first", 0)
	if err != nil || !found {
		return b, err
	}
	b.First, b.Unread = first, max(0, first+int64(now.Messages)-next)
	if next > 0 && !b.Back {
		b.Lost = max(0, first-next)
	}
	return b, nil
}

func (s *stream) Seek(ctx context.Context, next int64) (err error) {
	s.next = next
	from := amqp.Table{offsetHeader: "first"}
	if next > 0 {
		from[offsetHeader] = next - 1
	}
	if s.deliveries, err = s.channel.Consume(s.name, "", false, false, false, false, from); err != nil {
		return fmt.Errorf("read stream %s: %w", s.name, err)
	}
	if next == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	if s.early, err = s.take(bounded); err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return err
	}
	last, found, err := s.edge(ctx, "last", next-1)
	s.back = err == nil && (!found || last < next-1)
	return err
}

// edge is the offset of the stream's first message, or of its last one, and false if it has none. It looks no further
// than enough.
func (s *stream) edge(ctx context.Context, which string, enough int64) (offset int64, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	channel, err := s.conn.Channel()
	if err == nil {
		defer func() { _ = channel.Close() }()
		err = channel.Qos(1, 0, false)
	}
	var deliveries <-chan amqp.Delivery
	if err == nil {
		deliveries, err = channel.Consume(s.name, "", false, false, false, false, amqp.Table{offsetHeader: which})
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at stream %s: %w", s.name, err)
	}
	quiet := time.NewTimer(time.Second)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case <-quiet.C:
			return offset, found, nil
		case d, open := <-deliveries:
			if !open {
				return 0, false, fmt.Errorf("look at stream %s: RabbitMQ has closed the channel", s.name)
			}
			at, known := d.Headers[offsetHeader].(int64)
			if !known {
				return 0, false, fmt.Errorf("%s is not a stream: its messages have no offset", s.name)
			}
			if offset, found = at, true; at >= enough {
				return offset, found, nil
			}
			_ = d.Ack(false)
			quiet.Reset(time.Second)
		}
	}
}

func (s *stream) Next(ctx context.Context) ([]*kgo.Record, error) {
	for {
		batch := s.early
		if s.early = nil; batch == nil {
			var err error
			if batch, err = s.take(ctx); err != nil {
				return nil, err
			}
		}
		var records []*kgo.Record
		for _, d := range batch {
			offset, known := d.Headers[offsetHeader].(int64)
			if !known {
				return nil, fmt.Errorf("%s is not a stream: its messages have no offset", s.name)
			}
			if offset >= s.next {
				records = append(records, s.record(d, offset))
				s.next = offset + 1
			}
		}
		if err := batch[len(batch)-1].Ack(true); err != nil { // asks for more
			return nil, fmt.Errorf("read stream %s: %w", s.name, err)
		}
		if len(records) > 0 {
			return records, nil
		}
	}
}

// Settle has nothing to do.
func (s *stream) Settle(int64, []int64) error { return nil }
