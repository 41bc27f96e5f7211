package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Defaults of [Config].
const (
	DefaultMaxEvents       = 50_000
	DefaultMaxBytes        = 32 << 20
	DefaultMaxUnrecorded   = 10_000
	DefaultMaxRequestBytes = 8 << 20

	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
)

// slowRequest is the duration from which on a request counts as slow: its partitions go alone until they are fast
// again, because one partition (a frozen follower under acks=all) delays the answer for all that share the request.
const slowRequest = time.Second

// permitPause is the pause of a worker that may not send, before it asks again.
const permitPause = 20 * time.Millisecond

// provePause is the pause of a batch that needs a later permission, before it asks again.
const provePause = time.Millisecond

// askAgain is the pause after which the driver is asked again for partitions and leaders that records wait for, in
// case that nothing changed by itself.
const askAgain = time.Second

// The errors of [Engine.Submit], [Engine.Results], [Engine.Retry] and [Engine.Resume].
var (
	ErrClosed          = errors.New("the sink is closed")
	ErrNotHeld         = errors.New("the lane is not held")
	ErrStaleGeneration = errors.New("the lane was rejected again since this generation")
	ErrRetryOut        = errors.New("the lane has a retry without result")
	ErrEarlierOut      = errors.New("the lane has an earlier record that was given back and is not settled")
)

// Config bounds an [Engine]. Zero values mean the defaults.
type Config struct {
	// MaxEvents and MaxBytes (by Record.Cost) are the window: what is taken by Submit and not given back by Settled.
	MaxEvents, MaxBytes int
	// MaxUnrecorded is the most records that may be handed to the driver and not settled: after a crash these may have
	// been written without anybody knowing.
	MaxUnrecorded int
	// MaxRequestBytes bounds the sum of the batches in one request.
	MaxRequestBytes int
	// Linger is the least time between the starts of two requests to one node, so that batches grow; 0 sends whatever
	// waits as soon as the node is free. The first record after a quiet time never waits. Requests that
	// divide the partitions of a node among them share it.
	Linger time.Duration
	// Behind says how old what is submitted is, and may be nil. Who is far behind gains nothing by requests that follow
	// each other at once: they lie at least a fiftieth of it apart, and at most 20 ms. Small requests cost brokers and us
	// so much more for each record that a machine which is short of CPU never gets out of them. Not so while a full batch
	// waits, or one of 256 KiB, and a quarter of MaxUnrecorded is left: it would not grow, or gain little. It must be
	// quick.
	Behind func() time.Duration
	// Backoff is the pause after the given number of failures in a row (from 1). Default: 20 ms, doubling, at most 1 s,
	// up to a quarter less by chance.
	Backoff func(failures int) time.Duration
	// Permit is asked before each request is started; while it says no, nothing is sent. A time that is not zero asks for
	// more: that what it relies on was learned by a question that was put after it; see Outcome.Prove. Nil: always yes. It
	// must be quick and must not call the engine.
	Permit func(after time.Time) bool
	// Refuse says why no record may go to a topic of that name; nil when records may. It is asked when the name is first
	// met. Records for a refused topic are rejected, and the driver never sees the name. Nil: only the empty name.
	Refuse func(topic string) *Reason
	// Hooks observe.
	Hooks Hooks
}

// Hooks are called once per request or more rarely. They must be quick and must not call the engine. Any
// may be nil.
type Hooks struct {
	// Request is called after each request, from the goroutine of its node.
	Request func(Request)
	// Rerouted is called when a topic's number of partitions changed and its records are routed by the new number:
	// keys may be in another partition from now on.
	Rerouted func(topic string, from, to int)
}

// Request describes one finished request to [Hooks].
type Request struct {
	Node    int32
	Batches []*Batch // with their outcomes; valid during the call only
	Records int      // in all batches but those that are refused unsent
	Bytes   int      // of those, uncompressed
	Resent  int      // those of Records that had been handed to the driver before in the same batch, and met trouble
	Took    time.Duration
	Trouble Trouble // the widest of the batches'
	Err     error   // its cause
}

// Engine brings records to a [Driver]'s broker. The package comment is its contract; all methods may be called from
// any goroutine.
//
// Invariants, asserted where they could break:
//
//   - E1: a partition has at most one batch with the driver, and a request at most one batch of a partition.
//   - E2: a batch that the driver got is sent again unchanged until it is Accepted or Refused, but for a front that the
//     driver said is written. It is given up if it may be written only where its partition or topic is gone, and if it
//     is not written only where it is diverted.
//   - E3: a record is in exactly one place: a topic's waiting list, a partition's queue, a partition's batch, the
//     results, or with the submitter. Each list is in order, and lists of one lane are passed through one after the
//     other.
//   - E4: unrecorded <= MaxUnrecorded.
//   - E5: a record of a held lane is sent only if it was retried with the lane's current generation.
//
// Goroutines: watch follows the driver's news; run serves one node or one partition in trouble. All end in Close or
// Abandon.
type Engine struct {
	driver Driver
	config Config
	origin time.Time // engineState.since counts from here
	lifetime

	room    chan struct{} // holds a token when the window may have room for a waiting Submit
	arrived chan struct{} // holds a token when there may be results for a waiting Results
	news    chan struct{} // holds a token when records began to wait for partitions or leaders

	mu       sync.Mutex // guards everything below, and engineState of every record that the engine has
	closing  bool
	closeErr error
	routes
	window
	results     recordQueue // records with a result, for Results
	spare       []*Batch    // for reuse
	generations uint64      // the last generation given to a lane
	given       uint64      // results so far
	returns     uint64      // batches that were given back; see giveBack
	rerouted    uint64      // changes of a topic's number of partitions
	prompt      time.Time   // when the latest request was sent of those that were accepted and not slow
}

// lifetime holds an engine's contexts and its end.
type lifetime struct {
	sending    context.Context // of Produce; ends when Close gives up
	giveUp     context.CancelFunc
	stop       chan struct{} // closed when Close begins
	done       chan struct{} // closed when every goroutine has ended and the driver is closed
	goroutines sync.WaitGroup
}

// routes maps records to lanes and partitions; guarded by Engine.mu.
type routes struct {
	topics    map[string]*topic
	nodes     map[int32]*worker
	solos     map[*worker]struct{}
	throttled map[int32]throttle // by node: what it asked for
	homeless  ready              // partitions with work and without a leader
}

// window counts the records that the engine holds; guarded by Engine.mu.
type window struct {
	events      int  // in the window
	bytes       int  // in the window, by Record.Cost
	unrecorded  int  // handed to the driver, not settled
	outstanding int  // those of unrecorded whose batches have no definite answer
	sentBytes   int  // of these batches
	starving    bool // a worker found no unrecorded credit; feed wakes all
}

// engineState is the engine's part of a record that it holds; guarded by Engine.mu. The zero value is a record that
// no engine has.
type engineState struct {
	lane       *lane  // of a record that was rejected, held or retried; nil otherwise
	generation uint64 // with which it was retried; 0 otherwise
	since      int64  // nanoseconds since Engine.origin at Submit
	size       int32  // Driver.Size
	place      place
	counted    bool // in Engine.unrecorded
	alone      bool // inserted: a lane of its own, though it may have a key
	earlier    bool // in lane.earlier
}

// place is the position of a record in the engine, for E3.
type place uint8

const (
	nowhere       place = iota // no engine has it
	queued                     // in a topic's waiting list or a partition's queue
	sent                       // in a partition's batch
	finished                   // has its result, waits for Results
	withSubmitter              // returned by Results, neither settled nor retried
)

func (p place) String() string {
	return [...]string{
		"not with the engine", "queued, without a result", "being sent, without a result",
		"with a result that Results has not returned", "returned by Results, not settled",
	}[p]
}

// New makes an engine on the driver, which it closes in Close.
func New(d Driver, c Config) *Engine {
	setDefault(&c.MaxEvents, DefaultMaxEvents)
	setDefault(&c.MaxBytes, DefaultMaxBytes)
	setDefault(&c.MaxUnrecorded, DefaultMaxUnrecorded)
	setDefault(&c.MaxRequestBytes, DefaultMaxRequestBytes)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	if c.Refuse == nil {
		c.Refuse = func(topic string) *Reason {
			if topic != "" {
				return nil
			}
			return &Reason{Class: outbox.Permanent, Code: "INVALID_TOPIC", Text: "it is for a topic without a name"}
		}
	}
	sending, giveUp := context.WithCancel(context.Background())
	e := &Engine{
		driver: d, config: c, origin: time.Now(),
		lifetime: lifetime{sending: sending, giveUp: giveUp, stop: make(chan struct{}), done: make(chan struct{})},
		room:     make(chan struct{}, 1), arrived: make(chan struct{}, 1), news: make(chan struct{}, 1),
		routes: routes{
			topics: make(map[string]*topic), nodes: make(map[int32]*worker), solos: make(map[*worker]struct{}),
			throttled: make(map[int32]throttle),
		},
	}
	e.goroutines.Add(1)
	go e.watch()
	return e
}

func setDefault(value *int, byDefault int) {
	if *value <= 0 {
		*value = byDefault
	}
}

func defaultBackoff(failures int) time.Duration {
	d := lastBackoff
	if failures < 7 { // 20 ms << 6 is more than a second
		d = min(firstBackoff<<(failures-1), lastBackoff)
	}
	return d - rand.N(d/4+1)
}

// Close takes in nothing more, starts no further request, lets those in flight finish until the context ends and then
// cuts them off, ends every goroutine and closes the driver. Results goes on to return what has a result. Records
// without one never get one: whether they were written is unknown. The error is the driver's, or says that requests
// were cut off. A second Close waits for the first and returns the same.
func (e *Engine) Close(ctx context.Context) error {
	return e.end(ctx, func() error {
		if err := e.driver.Close(); err != nil {
			return fmt.Errorf("close the driver: %w", err)
		}
		return nil
	})
}

// Abandon is Close without an end of the driver, which another engine may have then. A driver must not take a batch of
// the one for a new attempt at a batch of the other that was cut off.
func (e *Engine) Abandon(ctx context.Context) error {
	return e.end(ctx, func() error {
		if l, ok := e.driver.(Leaver); ok {
			l.Left()
		}
		return nil
	})
}

func (e *Engine) end(ctx context.Context, last func() error) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.done
		return e.closeErr
	}
	e.closing = true
	close(e.stop)
	e.mu.Unlock()

	ended := make(chan struct{})
	go func() { e.goroutines.Wait(); close(ended) }()
	var cut error
	select {
	case <-ended:
	case <-ctx.Done():
		cut = ctx.Err()
		e.giveUp()
		<-ended
	}
	e.giveUp()
	err := last()
	if cut != nil {
		err = errors.Join(fmt.Errorf("close the sink: requests in flight were cut off: %w", cut), err)
	}
	e.closeErr = err
	close(e.done)
	return err
}

// signal puts a token into a channel of capacity 1, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// permits reports whether a request may begin, by something that was learned after the given time.
func (e *Engine) permits(after time.Time) bool {
	return e.config.Permit == nil || e.config.Permit(after)
}

// mayGoOn reports whether the partition's batch does not wait for a later permission.
func (e *Engine) mayGoOn(p *partition) bool {
	return p.batch == nil || p.batch.Outcome.Prove.IsZero() || e.permits(p.batch.Outcome.Prove)
}
