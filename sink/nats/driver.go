package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// batchLimit bounds a batch in bytes, so that an answer does not take long.
	batchLimit = 2 << 20
	// learnAgain is the pause before the servers are asked again for a topic without a stream.
	learnAgain = time.Second
	// dialPause is how long a failed connect is the answer to further ones.
	dialPause = 100 * time.Millisecond
)

var errClosed = errors.New("the NATS driver is closed")

// Driver sends to JetStream. Make it with New.
type Driver struct {
	config  Config
	news    chan struct{} // holds a token when a topic is to be learned
	ended   context.Context
	end     context.CancelFunc
	learner sync.WaitGroup
	dialing chan struct{} // holds a token while no one dials
	alarms  sink.AlarmBook

	outboxes conditional.Outboxes

	mu      sync.Mutex // guards what follows
	nc      *client.Conn
	since   time.Time // when no connection was possible first; zero while there is one
	dialed  time.Time // when it was tried last
	dialErr error
	topics  map[string]*topic
	streams []*stream // by node
	// deferred are the ends up to which topics are known whose stream was not, when they could not be read back
	deferred  map[string]int64
	changed   chan struct{}
	told      time.Time // when the servers have told of topics last
	maxRecord int       // what the servers take of one message, 0 while not known
}

// topic is a subject and the stream that takes it.
type topic struct {
	stream *stream // nil: not known
	err    error
	fresh  bool // learned since it was asked for, or since the stream refused it
}

var (
	_ sink.Driver   = (*Driver)(nil)
	_ sink.Deferrer = (*Driver)(nil)
	_ sink.Witness  = (*Driver)(nil)
	_ sink.Leaver   = (*Driver)(nil)

	_ sink.Recognizer = (*Driver)(nil)
)

// New makes a driver. It connects in the background, when the first topic is asked for.
func New(c Config) (*Driver, error) {
	if c.URL == "" {
		return nil, errors.New("no URL of a NATS server")
	}
	d := &Driver{
		config: c.withDefaults(), news: make(chan struct{}, 1), dialing: make(chan struct{}, 1),
		topics: make(map[string]*topic), changed: make(chan struct{}), deferred: make(map[string]int64),
	}
	d.dialing <- struct{}{}
	d.ended, d.end = context.WithCancel(context.Background())
	d.learner.Go(d.learn)
	return d, nil
}

// Word returns the broker's word for a topic.
func (*Driver) Word() string { return "subject" }

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	d.end()
	d.learner.Wait()
	<-d.dialing // no one dials any more
	d.mu.Lock()
	nc := d.nc
	d.mu.Unlock()
	if nc != nil {
		nc.Close()
	}
	d.dialing <- struct{}{}
	return nil
}

// Partitions implements [sink.Driver]: one as soon as the topic's stream is known.
func (d *Driver) Partitions(name string) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.topics[name]
	if t == nil {
		t = &topic{}
		d.topics[name] = t
		d.learnSoon()
	}
	if t.stream == nil {
		if t.err == nil && d.dialErr != nil {
			return 0, &trouble{sink.ClusterTrouble, d.dialErr}
		}
		return 0, t.err
	}
	return 1, t.err
}

// Partition implements [sink.Driver].
func (d *Driver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: the stream.
func (d *Driver) Node(name string, _ int32) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.topics[name]; t != nil && t.stream != nil {
		return t.stream.node
	}
	return -1
}

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Limits implements [sink.Driver].
func (d *Driver) Limits(name string) (batch, record int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	record = d.maxRecord
	if t := d.topics[name]; t != nil && t.stream != nil && t.stream.maxSize > 0 &&
		(record == 0 || t.stream.maxSize < record) {
		record = t.stream.maxSize
	}
	return batchLimit, record
}

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
	clear(d.deferred)
	d.mu.Unlock()
	for _, s := range streams {
		s.log.Forget()
	}
}

// Recognize implements [sink.Recognizer].
func (d *Driver) Recognize(ours func(source string) bool) { d.outboxes.Recognize(ours) }

// Unclaimed implements [sink.Recognizer].
func (d *Driver) Unclaimed() (stream string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.streams {
		conditional.First(&stream, &since, s.name, s.log)
	}
	return stream, since
}

// AnsweredSince reports whether servers have told of the topics, asked after that time. While they have not, it makes
// them be asked.
func (d *Driver) AnsweredSince(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told.After(t) {
		return d.dialErr == nil
	}
	for _, topic := range d.topics {
		topic.fresh = false
	}
	d.learnSoon()
	return false
}

// Unreachable says since when no server can be connected to, and why; nil when one can.
func (d *Driver) Unreachable() (since time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, d.dialErr
}

// PossibleDuplicates implements [sink.Witness]: there are none.
func (d *Driver) PossibleDuplicates() uint64 { return 0 }

// Alarms implements [sink.Witness].
func (d *Driver) Alarms() []sink.Alarm { return d.alarms.Alarms() }

// wentBack raises the alarm that the stream ends before what it had acknowledged.
func (d *Driver) wentBack(s *stream, was, is int64) {
	d.alarms.Raise(sink.Alarm{
		Kind: sink.AlarmOffsetsWentBack, Topic: s.name, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("stream %s ends at sequence %d and had acknowledged %d: it was deleted and made again, or its "+
			"server lost "+
			"messages. They are in the journal as published and will not be sent again; verify names them", s.name, is, was),
	}, d.config.Hooks.Alarm)
}

// connection is the open connection, or a new one.
func (d *Driver) connection(ctx context.Context) (*client.Conn, error) {
	select {
	case <-d.dialing:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection to NATS: %w", context.Cause(ctx))
	}
	defer func() { d.dialing <- struct{}{} }()
	d.mu.Lock()
	nc, dialed, err := d.nc, d.dialed, d.dialErr
	d.mu.Unlock()
	switch {
	case nc != nil && !nc.IsClosed():
		return nc, nil
	case d.ended.Err() != nil:
		return nil, errClosed
	case err != nil && time.Since(dialed) < dialPause:
		return nil, err
	}
	nc, err = d.config.connect(d.denied, d.learnSoon)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dialed, d.dialErr = time.Now(), err
	if err != nil {
		if d.since.IsZero() {
			d.since = d.dialed
		}
		d.announce()
		return nil, err
	}
	d.nc, d.since, d.maxRecord = nc, time.Time{}, int(nc.MaxPayload())
	return nc, nil
}

// denied is told when the server refuses a publish: there is no answer to the message itself.
func (d *Driver) denied(err error) {
	d.mu.Lock()
	streams := d.streams
	d.mu.Unlock()
	for _, s := range streams {
		if stop := s.waiting.Load(); stop != nil {
			(*stop)(&topicError{forbidden(err)})
		}
	}
}

// announce closes the channel of Changed. d.mu is held.
func (d *Driver) announce() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// trouble is an error that says whose it is.
type trouble struct {
	kind sink.Trouble
	err  error
}

func (t *trouble) Error() string         { return t.err.Error() }
func (t *trouble) Unwrap() error         { return t.err }
func (t *trouble) Trouble() sink.Trouble { return sink.TroubleOf(t.err, t.kind) }
