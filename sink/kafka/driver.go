package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
)

// Driver is a [sink.Driver] for one Kafka cluster.
type Driver struct {
	config Config
	dialer *connect.Dialer
	lifetime
	heard

	view    atomic.Pointer[view] // replaced under mu
	keyless atomic.Uint64        // records without a key so far
	stats   counters
	alarms  sink.AlarmBook

	wake   chan struct{} // to refreshLoop: do not wait
	fresh  chan struct{} // to refreshLoop: a topic was asked for that is not known
	learn  chan struct{} // to limitsLoop: a topic has no limit yet
	create chan struct{} // to createLoop: a topic does not exist

	asking   chan struct{}                   // held by who asks for a producer id, unless that takes long (askPatience)
	producer atomic.Pointer[recordset.Stamp] // the producer id that partitions take, nil before the first

	mu         sync.Mutex
	wanted     []string                      // topics asked for, in order; only appended to
	isWanted   map[string]bool               // the same
	endpoints  map[string]*endpoint          // by host:port
	good       string                        // address that answered a control request last
	partitions map[topicPartition]*partition // those produced to
	limits     map[string]*limit             // by topic
	creations  map[string]*creation          // of missing topics, by topic
}

// lifetime is how a driver ends.
type lifetime struct {
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	running sync.WaitGroup // refreshLoop, limitsLoop, createLoop
}

// heard is the latest answer of brokers, and its time.
type heard struct {
	trouble atomic.Pointer[silence] // why the last metadata request failed; nil when it did not
	// when the metadata request was made that was answered last; nil before the first
	told         atomic.Pointer[time.Time]
	lastFailure  atomic.Int64 // when a Produce request last got no answer, see sinceStart; 0: never
	lastAccepted atomic.Int64 // when a batch was accepted last, see sinceStart; 0: never
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Dropper = (*Driver)(nil)
)

// New makes a driver. It connects beside its caller, so that brokers that are away are no error here, and asks at once
// for what the first batch needs of any broker: a start has other things to wait for in the meantime.
func New(c Config) (*Driver, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the Kafka driver: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Driver{
		config:     c,
		lifetime:   lifetime{ctx: ctx, cancel: cancel},
		dialer:     connect.NewDialer(ctx, c.connections()),
		wake:       make(chan struct{}, 1),
		fresh:      make(chan struct{}, 1),
		isWanted:   make(map[string]bool),
		learn:      make(chan struct{}, 1),
		create:     make(chan struct{}, 1),
		asking:     make(chan struct{}, 1),
		endpoints:  make(map[string]*endpoint),
		partitions: make(map[topicPartition]*partition),
		limits:     make(map[string]*limit),
		creations:  make(map[string]*creation),
	}
	d.keyless.Store(rand.Uint64() >> 1) // relays that restart should not all begin with partition 0
	d.view.Store(&view{topics: make(map[string]*topicView), changed: make(chan struct{})})
	d.running.Go(d.refreshLoop)
	d.running.Go(d.limitsLoop)
	if c.NewTopics.Create {
		d.running.Go(d.createLoop)
	}
	return d, nil
}

// Close stops the driver's goroutines and closes its connections. Another Close does nothing.
func (d *Driver) Close() error {
	d.cancel()
	d.running.Wait()
	d.mu.Lock()
	endpoints := d.endpoints
	d.endpoints = make(map[string]*endpoint)
	d.mu.Unlock()
	for _, e := range endpoints {
		e.Close()
	}
	d.dialer.Close()
	return nil
}

// Partitions is the number of the topic's partitions, 0 while it is not known; see [sink.Driver]. A topic that is away
// keeps the number that it had.
func (d *Driver) Partitions(topic string) (int, error) {
	if t := d.view.Load().topics[topic]; t != nil {
		if t.err != nil {
			return len(t.partitions), &topicTrouble{d, topic, t, t.gone(time.Now())}
		}
		return len(t.partitions), nil
	}
	if topic == "" { // brokers close the connection on a metadata request with an empty name
		return 0, errors.New("a topic has a name")
	}
	d.want(topic)
	if silent := d.trouble.Load(); silent != nil {
		return 0, troubled{silent.err}
	}
	return 0, nil
}

// topicTrouble is why a topic is not usable. It is put into words when it is read: the engine asks for thousands of
// topics at a time.
type topicTrouble struct {
	d     *Driver
	topic string
	view  *topicView
	gone  bool // when it was asked for
}

// Error is [Driver.topicError].
func (t *topicTrouble) Error() string { return t.d.topicError(t.topic, t.view).Error() }

// Gone implements [sink.Gone].
func (t *topicTrouble) Gone() bool { return t.gone }

// Unwrap returns the broker's error.
func (t *topicTrouble) Unwrap() error { return t.view.err }

// troubled is an error of asking the brokers, for the engine.
type troubled struct{ error }

// Trouble is [sink.Troubled].
func (t troubled) Trouble() sink.Trouble { return TroubleOf(t.error) }

// Unwrap is the error itself.
func (t troubled) Unwrap() error { return t.error }

// want adds a topic to those that are asked for.
func (d *Driver) want(topic string) {
	d.mu.Lock()
	known := d.isWanted[topic]
	if !known {
		d.isWanted[topic] = true
		d.wanted = append(d.wanted, topic)
	}
	d.mu.Unlock()
	if !known {
		select {
		case d.fresh <- struct{}{}:
		default:
		}
	}
}

// Node is the broker that leads the partition, -1 while there is none.
func (d *Driver) Node(topic string, id int32) int32 {
	t := d.view.Load().topics[topic]
	if t == nil || id < 0 || int(id) >= len(t.partitions) {
		return -1
	}
	return t.partitions[id].node
}

// Reachable reports that the brokers answer, as far as is known. It may take some seconds until it is known that they
// do not.
func (d *Driver) Reachable() bool { return d.trouble.Load() == nil }

// AnsweredSince reports that brokers have told of the topics, asked after that time: what Partitions says of one is
// then as new. While they have not, it makes them be asked.
func (d *Driver) AnsweredSince(t time.Time) bool {
	if at := d.told.Load(); at != nil && at.After(t) {
		return d.Reachable()
	}
	d.refreshSoon()
	return false
}

// silence is brokers that cannot be asked.
type silence struct {
	since time.Time
	err   error // of the last attempt
}

// Unreachable says since when no broker answers, and why; nil when one does. Brokers are asked every few seconds, also
// while nothing is sent.
func (d *Driver) Unreachable() (since time.Time, err error) {
	if silent := d.trouble.Load(); silent != nil {
		return silent.since, silent.err
	}
	return time.Time{}, nil
}

// Changed is closed at the next change of what Partitions or Node would answer.
func (d *Driver) Changed() <-chan struct{} { return d.view.Load().changed }

// endpoint is the connections to a broker's address, and how fast it answers.
type endpoint struct {
	*connect.Endpoint
	pace pace // of Produce requests
}

// endpoint is that of an address.
func (d *Driver) endpoint(address string) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.endpoints[address]
	if e == nil {
		e = &endpoint{Endpoint: d.dialer.Endpoint(address)}
		d.endpoints[address] = e
	}
	return e
}

// publish makes v the view unless another one took its predecessor's place in the meantime.
func (d *Driver) publish(was, v *view) bool {
	if was == v {
		return true
	}
	if !d.view.CompareAndSwap(was, v) {
		return false
	}
	if was.changed != v.changed {
		close(was.changed)
	}
	return true
}

// leaderLost makes the partition leaderless until the brokers say who leads it, and asks them now.
func (d *Driver) leaderLost(topic string, id, node int32) {
	for {
		v := d.view.Load()
		next := v.without(topic, id, node)
		if d.publish(v, next) {
			break
		}
	}
	d.refreshSoon()
}

var errClosed = errors.New("the Kafka driver is closed")
