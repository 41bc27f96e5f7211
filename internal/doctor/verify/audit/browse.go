package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/sink"
)

// unreadable says why, for sinks whose broker cannot be read back.
var unreadable = map[string]string{
	config.SinkRabbitMQ:    "reading a queue takes its messages away from the consumers",
	config.SinkBullMQ:      "a job that is not in its queue may be done and removed",
	config.SinkWebhook:     "only the receiver knows the outcome of a request",
	config.SinkSQS:         "reading a queue takes its messages away from the consumers",
	config.SinkSNS:         "a topic keeps nothing",
	config.SinkEventBridge: "a bus keeps nothing",
	config.SinkStdout:      "lines that were written are nowhere to be read",
}

// elsewhere is where to look instead.
const elsewhere = "The relay's record is its journal: cdc-relay find ID shows one event, the table " +
	"cdc_relay_journal of all. To see what consumers have missed, compare its event_id with the ids that they keep"

// Readable says why the topics of the configured sink cannot be compared with the table, and where to look instead;
// nil: they can.
func Readable(cfg config.Config) error {
	if why, is := unreadable[cfg.Sink]; is {
		return fmt.Errorf("nothing can be compared with the table: sink is %s, and %s. %s", cfg.Sink, why, elsewhere)
	}
	return nil
}

// sourceOf returns the reader of the configured sink's topics.
func sourceOf(cfg config.Config) (source, error) {
	if cfg.Sink == config.SinkKafka {
		return newOnKafka(cfg)
	}
	d, err := brokers.Browser(cfg)
	return browsed{d}, err
}

// browsed asks brokers whose drivers can read topics.
type browsed struct{ driver sink.Browser }

func (b browsed) close() { _ = b.driver.Close() }

// find implements source.
func (b browsed) find(ctx context.Context, topic string) (foundTopic, error) {
	extent, err := b.driver.Extent(ctx, topic)
	if err != nil || !extent.Exists {
		return foundTopic{}, err
	}
	p := &partitionEnd{topic: topic, next: extent.First, unread: -1}
	p.told(extent)
	return foundTopic{ends: []*partitionEnd{p}, thins: extent.Thins, note: extent.Note}, nil
}

func (p *partitionEnd) told(e sink.Extent) {
	p.first, p.oldest, p.deleted = e.First, e.Oldest, e.Deleted
}

// begins implements source. A topic that is gone by now keeps what it said before.
func (b browsed) begins(ctx context.Context, topic string, ends []*partitionEnd) error {
	extent, err := b.driver.Extent(ctx, topic)
	if err == nil && extent.Exists {
		ends[0].told(extent)
	}
	return err
}

// ends implements source.
func (b browsed) ends(ctx context.Context, topic string, ends []*partitionEnd) error {
	extent, err := b.driver.Extent(ctx, topic)
	if err == nil {
		ends[0].end = extent.Next
	}
	return err
}

// read implements source. What passes, such as a connection that breaks, is waited for.
func (b browsed) read(ctx context.Context, p *partitionEnd, each func(stored) error) error {
	var own error // of each
	take := func(s stored) error {
		p.next = s.Offset + 1
		own = each(s)
		return own
	}
	for moved, at := time.Now(), p.next; ; {
		err := b.driver.Browse(ctx, p.topic, p.next, p.end, take)
		switch {
		case err == nil:
			p.next = p.end
			return nil
		case own != nil:
			return own
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.next > at:
			moved, at = time.Now(), p.next
		case time.Since(moved) > leaderPatience:
			return fmt.Errorf("read topic %s at offset %d: %w", p.topic, p.next, err)
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
