// Package inbox runs event handlers in Postgres transactions of the application: the effect of each event commits
// exactly once, and effects of a key commit in order, through crashes, rebalances, failing events and restored
// databases.
//
//	c, err := inbox.New(pool, inbox.Config{Name: "billing", Brokers: brokers, Topics: []string{"outbox.event.order"}})
//	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[OrderPlaced]) error {
//		_, err := tx.Exec(ctx, "INSERT INTO invoice …", e.Payload.Total)
//		return err
//	})
//	err = c.Run(ctx)
//
// A handler's transaction also inserts the event's row into the table inbox_event, and that row is the fence: no lease
// or generation is checked. An event that fails is retried, then parked in the database together with later events of
// its key, then becomes a dead letter; other keys and offsets continue. See docs/inbox.md.
//
// Not covered are effects outside the database (write them into an outbox there), order across added partitions, and
// ids older than Config.Keep.
//
// Tested in the module test/inbox, on a real Postgres, a real Kafka and processes that are killed.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// Consumer is one member of a group of processes that share the work. Create it with [New], register handlers, and call
// Run once.
type Consumer struct {
	pool       *pgxpool.Pool
	config     Config
	handlers   map[string]*registered
	middleware []func(Handler) Handler
	limits     map[string]int // of events of a type at once
	batches    bool
	problems   []error // of registering

	ran     atomic.Bool
	began   bool                    // a session has begun; of Run's goroutine
	session atomic.Pointer[session] // nil between sessions
	last    atomic.Int64            // when an event was decided last, in Unix nanoseconds

	mu        sync.Mutex
	counts    ledger.Counts
	counted   bool             // counts were taken
	unhandled map[string]bool  // types without a handler that were seen first
	down      map[string]error // what does not work now
	ends      map[lanes.Place]end
}

var errNilPool = errors.New("inbox: the pool is nil: make one with pgxpool.New")

// New returns a consumer, or an error for an invalid configuration. Handlers' transactions use the pool, so it needs a
// connection for each worker and two more.
func New(pool *pgxpool.Pool, config Config) (*Consumer, error) {
	if pool == nil {
		return nil, errNilPool
	}
	config, err := config.complete(int(pool.Config().MaxConns))
	if err != nil {
		return nil, err
	}
	return &Consumer{pool: pool, config: config, handlers: map[string]*registered{}, limits: map[string]int{},
		down: map[string]error{}, unhandled: map[string]bool{}, ends: map[lanes.Place]end{}}, nil
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Run consumes until the context ends. It then lets running handlers finish within Grace, stores offsets, leaves the
// group and returns nil. It returns an error only if waiting does not help, such as missing rights; outages of the
// database or the brokers are retried.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("inbox: Run was called before")
	}
	if len(c.handlers) == 0 {
		c.problems = append(c.problems, errors.New("inbox: no handler is registered: call inbox.On before Run"))
	}
	c.checkLimits()
	if err := errors.Join(c.problems...); err != nil {
		return err
	}
	c.wrap()
	pause := firstPause
	for {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if !c.worthWaiting(err) {
			return err
		}
		if errors.Is(err, ledger.ErrSetBack) {
			c.pool.Reset() // connections to a database that was swapped out would bring it back
			if c.config.Source != nil && c.config.Source.Queue() {
				c.config.Log.Error("inbox: the database's server was started again, or the database was set back. If commits "+
					"are gone, so are their messages: a queue does not hold what was acknowledged, and their effects are "+
					"missing. Publish those events again: inbox_event lacks their ids", "consumer", c.config.Name)
			}
		}
		c.setDown("beginning", err)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		c.config.Log.Warn("inbox: beginning again", "consumer", c.config.Name, "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// worthWaiting reports whether a session that ended with the error is followed by another. Once a session has begun,
// the configuration is right, and whatever ends it may pass: a restore takes tables and rights away for a while.
func (c *Consumer) worthWaiting(err error) bool {
	if c.began || errors.Is(err, ledger.ErrSetBack) || errors.Is(err, ledger.ErrUnfinished) {
		return true
	}
	kind := classify(err)
	return kind == causeLost || kind == causeConflict
}

// setDown notes what does not work, and reports whether it was so before.
func (c *Consumer) setDown(what string, err error) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was = c.down[what]
	if err == nil {
		delete(c.down, what)
	} else {
		c.down[what] = err
	}
	return was
}

// once runs one session: from the offsets of the database on, until the context ends or the database is another one.
func (c *Consumer) once(ctx context.Context) error {
	migrate := ledger.Migrate
	if c.began {
		migrate = ledger.Update
	}
	if !c.config.SkipMigration {
		if err := migrate(ctx, c.pool, c.config.Schema); err != nil {
			return err
		}
	}
	l, err := ledger.Open(ctx, c.pool, c.config.Schema, c.config.Name, c.config.IdleTimeout, c.config.Keep)
	if err != nil {
		return err
	}
	s, err := c.newSession(l)
	if err != nil {
		return err
	}
	c.setDown("beginning", nil)
	c.began = true
	c.session.Store(s)
	defer c.session.Store(nil)
	return s.run(ctx)
}

// Migrate creates or updates the inbox's tables in a schema, for consumers whose role may not do so at start. A
// consumer then needs only the grants in docs/inbox.md.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if pool == nil {
		return errNilPool
	}
	def(&schema, defaultSchema)
	return ledger.Migrate(ctx, pool, schema)
}

// WaitHandled waits until the consumer has decided an event, or the context ends, and returns the outcome: done, dead
// or discarded. It is for a page that must show what was just written.
func WaitHandled(ctx context.Context, pool *pgxpool.Pool, schema, consumer, id string) (string, error) {
	switch {
	case pool == nil:
		return "", errNilPool
	case consumer == "" || id == "":
		return "", errors.New("inbox: waiting for an event needs the name of the consumer and the id of the event")
	}
	def(&schema, defaultSchema)
	pause := time.Millisecond
	for {
		state, found, err := ledger.StateOf(ctx, pool, schema, consumer, id, "")
		if err != nil {
			return "", err
		}
		if found && state != "parked" {
			return state, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("inbox: event %s is not handled yet: %w", id, context.Cause(ctx))
		case <-time.After(pause):
			pause = min(pause*3/2, 50*time.Millisecond)
		}
	}
}

// Replay retries a dead letter, or at once a parked event and those before it. It reports whether there was one. by and
// note are stored.
func (c *Consumer) Replay(ctx context.Context, id, by, note string) (bool, error) {
	return ledger.Decide(ctx, c.pool, c.config.Schema, "inbox_replay", c.config.Name, id, by, note)
}

// Discard closes a dead letter or a parked event permanently. It reports whether there was one.
func (c *Consumer) Discard(ctx context.Context, id, by, note string) (bool, error) {
	return ledger.Decide(ctx, c.pool, c.config.Schema, "inbox_discard", c.config.Name, id, by, note)
}
