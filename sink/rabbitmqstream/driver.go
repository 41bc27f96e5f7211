package rabbitmqstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmqstream/internal/wire"
)

// pingPause is how often the server is asked whether it is there.
const pingPause = 2 * time.Second

// Driver publishes to streams. Make it with New.
type Driver struct {
	config     Config
	changed    chan struct{} // never closed: streams are looked for when something is published
	ended      context.Context
	end        context.CancelFunc
	pinger     sync.WaitGroup
	alarms     sink.AlarmBook
	duplicates atomic.Uint64
	frameLimit atomic.Int64 // of the server, as far as it is known

	mu         sync.Mutex   // guards what follows
	publishers []*publisher // by node
	byTopic    map[string]*publisher
	since      time.Time // when the server could not be reached first; zero while it can
	err        error
	told       time.Time // when it has answered last
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Tailer  = (*Driver)(nil)
	_ sink.Witness = (*Driver)(nil)
	_ sink.Leaver  = (*Driver)(nil)
)

// New makes a driver, which connects in the background.
func New(c Config) (*Driver, error) {
	if c.DialTimeout <= 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if _, err := parse(c.URL); err != nil {
		return nil, err
	}
	d := &Driver{config: c, changed: make(chan struct{}), byTopic: make(map[string]*publisher)}
	d.frameLimit.Store(wire.DefaultFrameLimit)
	d.ended, d.end = context.WithCancel(context.Background())
	d.pinger.Go(d.ping)
	return d, nil
}

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	d.end()
	d.pinger.Wait()
	d.Left()
	return nil
}

// Left implements [sink.Leaver].
func (d *Driver) Left() {
	d.mu.Lock()
	publishers := d.publishers
	d.mu.Unlock()
	for _, p := range publishers {
		<-p.turn
		p.drop(nil)
		p.turn <- struct{}{}
	}
}

// Partitions implements [sink.Driver].
func (d *Driver) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *Driver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each stream has a connection of its own.
func (d *Driver) Node(topic string, _ int32) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byTopic[topic]
	if p == nil {
		p = &publisher{driver: d, stream: topic, node: int32(len(d.publishers)), turn: make(chan struct{}, 1)}
		p.turn <- struct{}{}
		d.publishers, d.byTopic[topic] = append(d.publishers, p), p
	}
	return p.node
}

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver]: a batch is one frame.
func (d *Driver) Limits(string) (batch, record int) {
	limit := int(d.frameLimit.Load()) - wire.FrameHead
	return limit, limit
}

// Size implements [sink.Driver].
func (d *Driver) Size(r *sink.Record) int { return d.config.sizeOf(r) }

// Produce implements [sink.Driver].
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	d.mu.Lock()
	p := d.publishers[node]
	d.mu.Unlock()
	for _, b := range batches {
		b.Outcome = p.produce(ctx, b)
	}
}

// PossibleDuplicates implements [sink.Witness]: records that were sent again under another id.
func (d *Driver) PossibleDuplicates() uint64 { return d.duplicates.Load() }

// Alarms implements [sink.Witness].
func (d *Driver) Alarms() []sink.Alarm { return d.alarms.Alarms() }

// AnsweredSince reports whether the server has answered after that time.
func (d *Driver) AnsweredSince(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err == nil && d.told.After(t)
}

// Unreachable says since when the server cannot be reached, and why; nil when it can.
func (d *Driver) Unreachable() (since time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, d.err
}

// wentBack raises the alarm that the stream has lost messages that it had confirmed.
func (d *Driver) wentBack(stream string, messages uint64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: stream, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("stream %s lacks the last %d messages that it had confirmed: it was deleted and made again, "+
			"or its server lost them. They are in the journal as published and will not be sent again", stream, messages),
	}, d.config.Hooks.Alarm)
}

// dial connects, and notes whether that was possible.
func (d *Driver) dial(ctx context.Context) (*wire.Conn, error) {
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

// ping asks the server until the driver is closed.
func (d *Driver) ping() {
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
func (d *Driver) heard(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || wire.IsAnswer(err) && sink.TroubleOf(err, sink.ClusterTrouble) != sink.ConfigurationTrouble {
		d.since, d.err, d.told = time.Time{}, nil, time.Now()
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	if d.since.IsZero() {
		d.since = time.Now()
	}
	d.err = err
}
