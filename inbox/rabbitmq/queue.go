package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// queue numbers what is delivered: RabbitMQ has no position. The numbers begin with the time in microseconds, so that
// those of a later process are higher.
type queue struct {
	reader
	first int64
	next  int64 // of Next's goroutine

	mu      sync.Mutex
	pending []delivered // in order
}

type delivered struct {
	offset  int64
	tag     uint64
	settled bool
}

func (q *queue) Bounds(context.Context, int64) (b source.Bounds, err error) {
	now, err := q.look()
	return source.Bounds{ID: "queue", First: q.first, End: source.Unknown, Unread: int64(now.Messages)}, err
}

// Seek begins when no other consumer is there: what one has that died goes back to its place before it is gone. An
// exclusive consumer is one only in classic queues: RabbitMQ lets a quorum queue have several.
func (q *queue) Seek(_ context.Context, next int64) error {
	q.next = next
	now, err := q.look()
	if err == nil && now.Consumers > 0 {
		return fmt.Errorf("queue %s has %d consumers: %w", q.name, now.Consumers, source.ErrHeld)
	}
	if err == nil {
		q.deliveries, err = q.channel.Consume(q.name, "", false, true, false, false, nil)
	}
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.AccessRefused && strings.Contains(refused.Reason, "exclusive") {
		return fmt.Errorf("queue %s: %w", q.name, source.ErrHeld)
	}
	if err != nil {
		return fmt.Errorf("read queue %s: %w", q.name, err)
	}
	return nil
}

func (q *queue) Next(ctx context.Context) ([]*kgo.Record, error) {
	batch, err := q.take(ctx)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	records := make([]*kgo.Record, len(batch))
	for i, d := range batch {
		records[i] = q.record(d, q.next)
		q.pending = append(q.pending, delivered{offset: q.next, tag: d.DeliveryTag})
		q.next++
	}
	return records, nil
}

// Settle acknowledges: all below next in one, and each one above by itself, so that one that takes long does not keep
// RabbitMQ from sending more.
func (q *queue) Settle(next int64, above []int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, last := 0, uint64(0)
	for ; n < len(q.pending) && q.pending[n].offset < next; n++ {
		if !q.pending[n].settled {
			last = q.pending[n].tag
		}
	}
	if last > 0 {
		if err := q.channel.Ack(last, true); err != nil {
			return fmt.Errorf("acknowledge messages of queue %s: %w", q.name, err)
		}
	}
	q.pending = q.pending[n:]
	at := 0
	for _, offset := range above {
		for at < len(q.pending) && q.pending[at].offset < offset {
			at++
		}
		if at == len(q.pending) || q.pending[at].offset != offset || q.pending[at].settled {
			continue
		}
		if err := q.channel.Ack(q.pending[at].tag, false); err != nil {
			return fmt.Errorf("acknowledge a message of queue %s: %w", q.name, err)
		}
		q.pending[at].settled = true
	}
	return nil
}
