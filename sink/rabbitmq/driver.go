package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config] and [StreamConfig].
const (
	defaultDialTimeout    = 3 * time.Second
	defaultRequestTimeout = 10 * time.Second
)

const (
	batchLimit = 1 << 20 // bytes
	// recordLimit: a larger message closes the channel on servers whose max_message_size is lower than the default, 128
	// MiB.
	recordLimit = 16 << 20
	// connectPause is how often the driver tries to connect while nothing is sent.
	connectPause = 2 * time.Second
)

// Config says where the server is. Files are read again at each connect.
type Config struct {
	URL          string // amqp://user@host:port/vhost, amqps:// for TLS
	PasswordFile string
	TLS          certs.Files
	Name         string // of the connection, in the server's lists
	// Exchanges is a regular expression of the exchanges that are written to, for the rabbitmqctl commands in errors: a
	// grant replaces the former one. "": the exchange at hand.
	Exchanges   string
	RoutingKey  string // {key} is the record's key, another name in braces the header's value
	ContentType string
	Consumers   []Consumer
	// QueueSeen is told when a queue of the consumers is missing, and when it is there again; nil: no one wants to know.
	QueueSeen   func(queue string, there bool)
	IDHeader    string        // the header that becomes message-id
	TypeHeader  string        // the header that becomes type
	DialTimeout time.Duration // 0: 3 s
	// RequestTimeout bounds how long the server may confirm nothing; it does not count while the server blocks publishers.
	// 0: 10 s.
	RequestTimeout time.Duration
	// Dial opens a connection to the server's address; nil: a TCP connection.
	Dial func(network, address string, timeout time.Duration) (net.Conn, error)
}

// Driver publishes to exchanges. Make it with New.
type Driver struct {
	sink.Contact
	config     Config
	changed    chan struct{} // never closed: exchanges are looked for when something is published
	ended      context.Context
	end        context.CancelFunc
	watch      sync.WaitGroup
	dialing    chan struct{} // holds a token while no one dials
	duplicates atomic.Uint64 // messages that were sent again after an unknown outcome
	exchanges  sink.Nodes[*exchange]
	queues     watcher

	mu         sync.Mutex // guards what follows
	connection *connection
	blocked    *atomic.Bool // of connection
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Witness = (*Driver)(nil)
	_ sink.Dropper = (*Driver)(nil)
)

// New makes a driver, which connects in the background.
func New(c Config) (*Driver, error) {
	if _, err := amqp.ParseURI(c.URL); err != nil {
		return nil, fmt.Errorf("read the URL of RabbitMQ: %w", err)
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	if c.Dial == nil {
		c.Dial = net.DialTimeout
	}
	d := &Driver{config: c, changed: make(chan struct{}), dialing: make(chan struct{}, 1)}
	d.queues.driver, d.queues.seen = d, map[string]queueLook{}
	d.dialing <- struct{}{}
	d.ended, d.end = context.WithCancel(context.Background())
	d.watch.Go(d.keepConnected)
	return d, nil
}

// Word returns the broker's word for a topic.
func (*Driver) Word() string { return "exchange" }

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	d.mu.Lock() // nothing begins to watch from here on
	d.end()
	d.mu.Unlock()
	d.watch.Wait()
	<-d.dialing
	defer func() { d.dialing <- struct{}{} }()
	d.mu.Lock()
	c := d.connection
	d.connection = nil
	d.mu.Unlock()
	if c != nil {
		c.end() // nothing is in flight any more
	}
	return nil
}

// Partitions implements [sink.Driver].
func (d *Driver) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *Driver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each exchange has a channel of its own, because a channel ends with its first error.
func (d *Driver) Node(topic string, _ int32) int32 {
	_, node := d.exchanges.Of(topic, func() *exchange {
		e := &exchange{driver: d, name: topic, turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		return e
	})
	return node
}

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Driver) Limits(string) (batch, record int) { return batchLimit, recordLimit }

// Size implements [sink.Driver].
func (d *Driver) Size(r *sink.Record) int { return sizeOf(r) }

// Produce implements [sink.Driver].
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	e := d.exchanges.At(node)
	for _, b := range batches {
		e.produce(ctx, b)
	}
}

// Dropped implements [sink.Dropper]: what may have been routed comes again as a new message.
func (d *Driver) Dropped(b *sink.Batch) {
	p, _ := b.State.(*progress)
	if p == nil {
		return
	}
	for i, sent := range p.sent {
		if sent && !p.done[i] {
			d.duplicates.Add(1)
		}
	}
}

// PossibleDuplicates implements [sink.Witness].
func (d *Driver) PossibleDuplicates() uint64 { return d.duplicates.Load() }

// Alarms implements [sink.Witness]: there is nothing that could be noticed.
func (d *Driver) Alarms() []sink.Alarm { return nil }

// keepConnected connects while nothing is sent, so that it is known whether the server is there.
func (d *Driver) keepConnected() {
	pause := time.NewTicker(connectPause)
	defer pause.Stop()
	for {
		_, _, _ = d.connect(d.ended)
		select {
		case <-pause.C:
		case <-d.ended.Done():
			return
		}
	}
}

// Slowed says that the server takes no messages from publishers now; empty: it does.
func (d *Driver) Slowed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection == nil || d.connection.IsClosed() || !d.blocked.Load() {
		return ""
	}
	return "RabbitMQ blocks publishers, for want of memory or disk space: events wait in order until its alarm is over"
}

// connect gives the open connection, or a new one, and whether the server blocks publishers on it.
func (d *Driver) connect(ctx context.Context) (*connection, *atomic.Bool, error) {
	select {
	case <-d.dialing:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for a connection to RabbitMQ: %w", context.Cause(ctx))
	}
	defer func() { d.dialing <- struct{}{} }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection != nil && !d.connection.IsClosed() {
		return d.connection, d.blocked, nil
	}
	if d.ended.Err() != nil {
		return nil, nil, errors.New("the RabbitMQ driver is closed")
	}
	d.mu.Unlock()
	c, err := d.config.dial()
	d.mu.Lock()
	if err != nil {
		d.Lost(err)
		return nil, nil, err
	}
	d.Reached()
	blocked := new(atomic.Bool)
	notes := c.NotifyBlocked(make(chan amqp.Blocking, 1))
	go func() { // ends with the connection
		for note := range notes {
			blocked.Store(note.Active)
		}
	}()
	d.connection, d.blocked = c, blocked
	return c, blocked, nil
}
