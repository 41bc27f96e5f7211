package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

// pingPause is how often the server is asked whether it is there.
const pingPause = 2 * time.Second

// StreamDriver publishes to streams. Make it with NewStream.
type StreamDriver struct {
	sink.Contact
	config     StreamConfig
	changed    chan struct{} // never closed: streams are looked for when something is published
	ended      context.Context
	end        context.CancelFunc
	pinger     sync.WaitGroup
	alarms     sink.AlarmBook
	duplicates atomic.Uint64
	frameLimit atomic.Int64 // of the server, as far as it is known
	publishers sink.Nodes[*publisher]
}

var (
	_ sink.Driver  = (*StreamDriver)(nil)
	_ sink.Tailer  = (*StreamDriver)(nil)
	_ sink.Witness = (*StreamDriver)(nil)
	_ sink.Leaver  = (*StreamDriver)(nil)
	_ sink.Dropper = (*StreamDriver)(nil)
)

// NewStream makes a driver, which connects in the background.
func NewStream(c StreamConfig) (*StreamDriver, error) {
	if c.DialTimeout <= 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	if _, err := parseStream(c.URL); err != nil {
		return nil, err
	}
	d := &StreamDriver{config: c, changed: make(chan struct{})}
	d.frameLimit.Store(wire.DefaultFrameLimit)
	d.ended, d.end = context.WithCancel(context.Background())
	d.pinger.Go(d.ping)
	return d, nil
}

// Word returns the broker's word for a topic.
func (*StreamDriver) Word() string { return "stream" }

// Close implements [sink.Driver].
func (d *StreamDriver) Close() error {
	d.end()
	d.pinger.Wait()
	d.Left()
	return nil
}

// Left implements [sink.Leaver].
func (d *StreamDriver) Left() {
	for _, p := range d.publishers.All() {
		<-p.turn
		p.drop(nil)
		p.turn <- struct{}{}
	}
}

// Partitions implements [sink.Driver].
func (d *StreamDriver) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *StreamDriver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each stream has a connection of its own.
func (d *StreamDriver) Node(topic string, _ int32) int32 {
	_, node := d.publishers.Of(topic, func() *publisher {
		p := &publisher{driver: d, stream: topic, turn: make(chan struct{}, 1)}
		p.turn <- struct{}{}
		return p
	})
	return node
}

// Changed implements [sink.Driver].
func (d *StreamDriver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver]: a batch is one frame.
func (d *StreamDriver) Limits(string) (batch, record int) {
	limit := int(d.frameLimit.Load()) - wire.FrameHead
	return limit, limit
}

// Size implements [sink.Driver].
func (d *StreamDriver) Size(r *sink.Record) int { return d.config.sizeOf(r) }

// Produce implements [sink.Driver].
func (d *StreamDriver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	p := d.publishers.At(node)
	for _, b := range batches {
		b.Outcome = p.produce(ctx, b)
	}
}

// Dropped implements [sink.Dropper]: what may have been sent comes again under other ids.
func (d *StreamDriver) Dropped(b *sink.Batch) {
	if s, _ := b.State.(*ids); s != nil && s.tried {
		d.duplicates.Add(uint64(s.count))
	}
}

// PossibleDuplicates implements [sink.Witness]: records that were sent again under another id.
func (d *StreamDriver) PossibleDuplicates() uint64 { return d.duplicates.Load() }

// Alarms implements [sink.Witness].
func (d *StreamDriver) Alarms() []sink.Alarm { return d.alarms.Alarms() }

// wentBack raises the alarm that the stream has lost messages that it had confirmed.
func (d *StreamDriver) wentBack(stream string, messages uint64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: stream, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("stream %s lacks the last %d messages that it had confirmed: it was deleted and made again, "+
			"or its server lost them. They are in the journal as published and will not be sent again", stream, messages),
	}, d.config.Hooks.Alarm)
}

// dial connects, and notes whether that was possible.
func (d *StreamDriver) dial(ctx context.Context) (*wire.Conn, error) {
	o, err := d.config.options()
	var c *wire.Conn
	if err == nil {
		c, err = wire.Dial(ctx, o)
	}
	d.heard(err)
	if err == nil {
		d.frameLimit.Store(int64(c.FrameLimit))
	}
	return c, err
}

// dialLeader connects to the node that leads the stream. Another node's copy may lack the end, so what is there may be
// taken for missing. Where the leader cannot be reached at the address that it advertises, the configured node's copy
// has to do.
func (d *StreamDriver) dialLeader(ctx context.Context, stream string) (*wire.Conn, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	leader, err := c.Leader(stream)
	if err != nil || leader == "" || leader == c.Advertised {
		return c, nil // the stream's first question says what is wrong
	}
	o, err := d.config.options()
	if err != nil {
		return c, nil
	}
	o.Address = leader
	there, err := wire.Dial(ctx, o)
	if err != nil || there.Advertised != leader {
		if err == nil {
			_ = there.Close()
		}
		return c, nil
	}
	_ = c.Close()
	return there, nil
}

// ping asks the server until the driver is closed.
func (d *StreamDriver) ping() {
	pause := time.NewTicker(pingPause)
	defer pause.Stop()
	var c *wire.Conn
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for {
		var err error
		if c == nil {
			c, err = d.dial(d.ended)
		}
		if err == nil {
			stop := context.AfterFunc(d.ended, func(c *wire.Conn) func() { return func() { _ = c.Close() } }(c))
			err = c.Stream("cdc-relay") // there need not be one
			stop()
			d.heard(err)
			if err != nil && !wire.IsAnswer(err) {
				_ = c.Close()
				c = nil
			}
		}
		select {
		case <-pause.C:
		case <-d.ended.Done():
			return
		}
	}
}

// heard notes whether the server answered.
func (d *StreamDriver) heard(err error) {
	switch {
	case err == nil || wire.IsAnswer(err) && sink.TroubleOf(err, sink.ClusterTrouble) != sink.ConfigurationTrouble:
		d.Reached()
	case !errors.Is(err, context.Canceled):
		d.Lost(err)
	}
}
