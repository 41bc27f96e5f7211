package redisstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/conditional"
)

const (
	batchLimit  = 1 << 20  // bytes, so that an answer does not take long
	recordLimit = 16 << 20 // Redis takes 512 MB (proto-max-bulk-len), which holds up everybody else
	// pingPause is how often the server is asked while it is not known to be away.
	pingPause = 2 * time.Second
)

// Driver appends to streams. Make it with New.
type Driver struct {
	config  Config
	client  *redis.Client
	changed chan struct{} // never closed: streams exist as soon as something is added
	ended   context.Context
	end     context.CancelFunc
	pinger  sync.WaitGroup
	alarms  sink.AlarmBook

	mu      sync.Mutex // guards what follows
	streams []*stream  // by node
	byTopic map[string]*stream
	since   time.Time // when the server could not be reached first; zero while it can
	err     error
	told    time.Time // when it has answered last
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Tailer  = (*Driver)(nil)
	_ sink.Witness = (*Driver)(nil)
	_ sink.Leaver  = (*Driver)(nil)
)

// New makes a driver. It connects when it is used, and asks the server every two seconds whether it is there.
func New(c Config) (*Driver, error) {
	if c.DialTimeout <= 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	d := &Driver{config: c, client: client, changed: make(chan struct{}), byTopic: make(map[string]*stream)}
	d.ended, d.end = context.WithCancel(context.Background())
	d.pinger.Go(d.ping)
	return d, nil
}

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	d.end()
	d.pinger.Wait()
	err := d.client.Close()
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}

// Partitions implements [sink.Driver].
func (d *Driver) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *Driver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each stream is asked by itself.
func (d *Driver) Node(topic string, _ int32) int32 { return d.streamOf(topic).node }

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Driver) Limits(string) (batch, record int) { return batchLimit, recordLimit }

// Size implements [sink.Driver].
func (d *Driver) Size(r *sink.Record) int { return sizeOf(r) }

// Produce implements [sink.Driver].
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	d.mu.Lock()
	s := d.streams[node]
	d.mu.Unlock()
	s.log.Produce(ctx, s, batches)
}

// Left implements [sink.Leaver].
func (d *Driver) Left() {
	d.mu.Lock()
	streams := d.streams
	d.mu.Unlock()
	for _, s := range streams {
		s.log.Forget()
	}
}

func (d *Driver) streamOf(topic string) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.byTopic[topic]
	if s == nil {
		s = &stream{driver: d, key: topic, node: int32(len(d.streams)), log: conditional.NewLog()}
		s.log.WentBack = func(was, is int64) { d.wentBack(topic, was, is) }
		d.streams, d.byTopic[topic] = append(d.streams, s), s
	}
	return s
}

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

// PossibleDuplicates implements [sink.Witness]: there are none.
func (d *Driver) PossibleDuplicates() uint64 { return 0 }

// Alarms implements [sink.Witness].
func (d *Driver) Alarms() []sink.Alarm { return d.alarms.Alarms() }

func (d *Driver) wentBack(topic string, was, is int64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: topic, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("stream %s ends at %s and had acknowledged %s: it was deleted, or Redis lost what it had "+
			"acknowledged (appendfsync, "+
			"a failover). Those events are in the journal as published and will not be sent again; verify tells which", topic,
			idOf(is), idOf(was)),
	}, d.config.Hooks.Alarm)
}

// ping asks the server until the driver is closed.
func (d *Driver) ping() {
	pause := time.NewTicker(pingPause)
	defer pause.Stop()
	for {
		ctx, cancel := context.WithTimeout(d.ended, d.config.RequestTimeout)
		d.heard(d.client.Ping(ctx).Err())
		cancel()
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
	var said redis.Error
	if err == nil || errors.As(err, &said) && troubleOf(err) != sink.ConfigurationTrouble {
		d.since, d.err, d.told = time.Time{}, nil, time.Now()
		return
	}
	if d.since.IsZero() {
		d.since = time.Now()
	}
	d.err = err
}
