package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [SQSConfig], [SNSConfig] and [EventBridgeConfig].
const (
	// defaultMaxBytes is the most bytes of a message of a queue that is as SQS made them before 2025; newer queues take
	// 1 MiB. It is also the most bytes of an event and of a request, as EventBridge counts them, in every region.
	defaultMaxBytes = 256 << 10
	defaultRequests = 16
	defaultTimeout  = 10 * time.Second
)

const (
	// maxEntries is the most entries of a request, of all three services.
	maxEntries = 10
	// interval is how long a FIFO queue or topic remembers a deduplication id (SQS Developer Guide, "Using the message
	// deduplication ID"; SNS Developer Guide, "Message deduplication for FIFO topics").
	interval = 5 * time.Minute
	// batchLimit is the most bytes of a batch of the engine; requests are cut by the driver.
	batchLimit = 1 << 20
)

// service is one of AWS's services. Its methods may be called at the same time.
type service interface {
	// Find looks for the topic's destination and returns its address: what Send needs.
	Find(ctx context.Context, topic string) (address string, err error)
	// Create makes the destination.
	Create(ctx context.Context, topic string) error
	// Judge says why the record cannot be an entry, nil when it can.
	Judge(r *sink.Record) *sink.Reason
	// Size is the size of the record's entry in bytes, as the service counts it.
	Size(r *sink.Record) int
	// Send sends the records in one request. The list has an error for each that was not taken, and is nil when all were.
	Send(ctx context.Context, address string, records []*sink.Record) (failed []error, err error)
	// Deduplicates reports whether the topic's destination takes a deduplication id once.
	Deduplicates(topic string) bool
	// Grant is the statement of a policy that lets the relay send to the topic's destination.
	Grant(topic string) string
	// Place is the destination in words, such as "SQS queue orders.fifo".
	Place(topic string) string
	// Examine implements Examine of the driver.
	Examine(ctx context.Context, d *Driver, topic string) (text string, risky bool, err error)
	// Word is the service's word for a topic.
	Word() string
}

// options says how a driver uses its service.
type options struct {
	MaxBytes int           // of an entry, and of the entries of a request
	Requests int           // of a topic, at a time
	Timeout  time.Duration // of one request
	Create   bool          // missing destinations
	Recheck  time.Duration // how often a destination is looked for again; 0: when an answer says that it is missing
	Created  func(place string)
	Advice   func(topic string) string // what to do about a missing destination
	IDHeader string                    // the header that identifies an event
}

// Driver sends to destinations of a service. Make it with NewSQS, NewSNS or NewEventBridge.
type Driver struct {
	sink.Contact
	service      service
	login        *login
	config       options
	changed      chan struct{} // never closed: destinations are looked for when something is sent
	duplicates   atomic.Uint64 // entries that were sent again after an unknown outcome, and may have been taken again
	destinations sink.Nodes[*destination]
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Witness = (*Driver)(nil)
	_ sink.Dropper = (*Driver)(nil)
)

// newDriver makes a driver, which connects when there is something to send.
func newDriver(l *login, s service, c options) *Driver {
	c.Requests = cmp.Or(c.Requests, defaultRequests)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Created == nil {
		c.Created = func(string) {}
	}
	return &Driver{service: s, login: l, config: c, changed: make(chan struct{})}
}

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	d.login.close()
	return nil
}

// Partitions implements [sink.Driver].
func (d *Driver) Partitions(string) (int, error) { return 1, nil }

// Partition implements [sink.Driver].
func (d *Driver) Partition(*sink.Record, int) int32 { return 0 }

// Node implements [sink.Driver]: each destination is one.
func (d *Driver) Node(topic string, _ int32) int32 {
	_, node := d.destinations.Of(topic, func() *destination {
		e := &destination{driver: d, topic: topic, turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		return e
	})
	return node
}

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Driver) Limits(string) (batch, record int) { return batchLimit, d.config.MaxBytes }

// Size implements [sink.Driver].
func (d *Driver) Size(r *sink.Record) int { return d.service.Size(r) }

// Produce implements [sink.Driver].
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	e := d.destinations.At(node)
	for _, b := range batches {
		e.produce(ctx, b)
	}
}

// Dropped implements [sink.Dropper]. Records with an unknown outcome come again, perhaps after the deduplication
// interval, so they count as possible duplicates.
func (d *Driver) Dropped(b *sink.Batch) {
	p, _ := b.State.(*progress)
	if p == nil {
		return
	}
	for i, since := range p.doubt {
		if !since.IsZero() && !p.done[i] {
			d.duplicates.Add(1)
		}
	}
}

// PossibleDuplicates implements [sink.Witness].
func (d *Driver) PossibleDuplicates() uint64 { return d.duplicates.Load() }

// Alarms implements [sink.Witness]: there is nothing that could be noticed.
func (d *Driver) Alarms() []sink.Alarm { return nil }

// Examine looks for the destination of the topic, the only one that there is, or for credentials alone if it is empty.
// Risky reports that something about the destination is not as it should be.
func (d *Driver) Examine(ctx context.Context, topic string) (text string, risky bool, err error) {
	return d.service.Examine(ctx, d, topic)
}

// Word returns the broker's word for a topic.
func (d *Driver) Word() string { return d.service.Word() }

// look looks for the topic's destination, for check. Missing ones are not made.
func (d *Driver) look(ctx context.Context, topic string) (address string, err error) {
	err = d.ask(ctx, topic, func(ctx context.Context) (err error) {
		address, err = d.service.Find(ctx, topic)
		return err
	})
	return address, err
}

// ask runs one question about the topic's destination, and explains its error.
func (d *Driver) ask(ctx context.Context, topic string, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	if err := d.login.ready(ctx); err != nil {
		return err
	}
	if err := question(ctx); err != nil {
		return d.explain(topic, err).err
	}
	d.Reached()
	return nil
}

// destination is one queue, topic or bus. What has no other owner belongs to who took the turn.
type destination struct {
	driver *Driver
	topic  string
	turn   chan struct{} // holds a token while no one sends

	address string              // empty: not known
	looked  time.Time           // when it was looked for
	taken   map[string]struct{} // identities of records behind refused ones that the service has taken
}

// open looks for the destination, and makes it if it is missing and that is wanted.
func (e *destination) open(ctx context.Context) *trouble {
	d := e.driver
	fresh := d.config.Recheck == 0 || time.Since(e.looked) < d.config.Recheck
	if e.address != "" && fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	address, err := d.service.Find(ctx, e.topic)
	if err != nil && d.config.Create && isMissing(err) {
		if err = d.service.Create(ctx, e.topic); err != nil {
			err = fmt.Errorf("create it: %w", err)
		} else {
			d.config.Created(d.service.Place(e.topic))
			address, err = d.service.Find(ctx, e.topic)
		}
	}
	if err != nil {
		e.address = ""
		t := d.explain(e.topic, err)
		t.verdict = sink.NotWritten // nothing was sent
		if t.reason != nil {
			t.of = sink.TopicTrouble
		}
		return t
	}
	d.Reached()
	e.address, e.looked = address, time.Now()
	return nil
}

// group runs work for each chunk, at most so many at a time, and waits for all.
func group(chunks [][]int, most int, work func(n int)) {
	var running sync.WaitGroup
	next := atomic.Int64{}
	for range min(most, len(chunks)) {
		running.Go(func() {
			for n := int(next.Add(1)) - 1; n < len(chunks); n = int(next.Add(1)) - 1 {
				work(n)
			}
		})
	}
	running.Wait()
}

// fates collects the outcome of each entry of a request; entry ids are indexes.
type fates []error

// newFates starts with n unknown outcomes: an entry that the answer does not mention may have been taken.
func newFates(n int) fates {
	f := make(fates, n)
	for i := range f {
		f[i] = errNotMentioned
	}
	return f
}

// Taken notes that the entry was taken.
func (f fates) Taken(id *string) { f.put(id, nil) }

// Failed notes why the entry was not taken.
func (f fates) Failed(id, code, message *string) {
	f.put(id, &entryError{Code: sdk.ToString(code), Message: sdk.ToString(message)})
}

func (f fates) put(id *string, err error) {
	if i, wrong := strconv.Atoi(sdk.ToString(id)); wrong == nil && i >= 0 && i < len(f) {
		f[i] = err
	}
}

var errNotMentioned = errors.New("the answer does not say what became of the entry")
