// Package spool keeps what a stream brings in a table of the relay's while it cannot be sent, so that Postgres need not
// keep its WAL, and hands it out again in order, as the stream would have done. A message is stored as it came: an
// event that is read later from its row in the outbox could be gone by then, or changed, or hidden.
//
// The package decides neither when to spool nor where an event ends. Who takes the batches counts their events in
// a ledger, and a row is deleted when that has come past it.
//
// Three goroutines, which a session starts and waits for: the intake (intake.go) is the only one to read the stream
// while it runs, the reader (reader.go) hands out what is stored, and the sweeper deletes what is done.
package spool

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/retry"
)

const (
	storeEvery = 100 * time.Millisecond // a row waits for more transactions at most so long
	sweepEvery = 500 * time.Millisecond
	leaveLook  = 50 * time.Millisecond // the pause between two looks whether the stream may be sent again
)

var again = retry.Backoff{Initial: 20 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2}

// Tables is the spool's table; package store documents the methods.
type Tables interface {
	OpenSpool(ctx context.Context) (store.SpoolState, error)
	Spool(ctx context.Context, r store.Spooled) error
	NextSpooled(ctx context.Context, after int64) (r store.Spooled, ok bool, err error)
	DeleteSpooled(ctx context.Context, first, last int64) error
}

// Options configure a Spool.
type Options struct {
	Tables Tables
	Logger zerolog.Logger
	State  store.SpoolState // of OpenSpool, in this session
	Era    int64            // of the session's positions

	Outbox []uint32 // OIDs of the table and its partitions
	Root   uint32   // of the table; 0: there are several, none renamed

	// Of the intake. A nil Stream is not read: what is spooled is handed out, and no more comes.
	Stream  <-chan *replication.Batch
	Decoder *decoder.Decoder // its own
	Prefix  string           // of the relay's own logical messages
	Stored  func(outbox.LSN) // the stream is stored up to here

	Sent  func() outbox.LSN // up to where all that was handed out is settled
	Flows func() bool       // what is handed out now is sent soon
	Fail  func(error)       // ends the session: what is stored cannot be read

	// Called takes in how a call went: why it failed, which may be that the session has lost the slot, or nil. It reports
	// whether that is to be logged.
	Called func(what string, err error) (news bool)
}

// Spool is that of one session.
type Spool struct {
	o       Options
	codec   *codec
	batches chan *replication.Batch
	rest    chan *replication.Batch // what the intake has read beyond what is stored; closed behind it
	news    chan struct{}           // told, without waiting, when a row was stored
	left    chan struct{}           // closed when the intake has ended
	leave   chan struct{}           // closed when it is to end
	leaving sync.Once
	ended   sync.WaitGroup
	failed  error // why the intake cannot go on; read after left is closed

	// Owned by the intake.
	packer packer
	number int64      // of the last row
	skip   outbox.LSN // transactions that committed before it are stored
	beyond outbox.LSN // nothing of ours is in the stream from what is packed up to here

	whole  atomic.Int64 // number of the last row in which a transaction ends
	events atomic.Int64 // spooled and not deleted
	unread atomic.Int64 // of these, not handed out
	oldest atomic.Int64 // commit time of the first of them, or one before it; microseconds since the Unix epoch
	given  atomic.Bool  // all is handed out, and no more comes
	empty  atomic.Bool  // nothing is spooled, nor will be

	mu  sync.Mutex
	out []handed // rows handed out and not deleted
}

// handed is a row that was handed out.
type handed struct {
	number    int64
	ends      outbox.LSN
	committed int64
	events    int
}

// New makes a spool; nothing happens before Run.
func New(o Options) *Spool {
	s := &Spool{o: o, codec: newCodec(), batches: make(chan *replication.Batch), rest: make(chan *replication.Batch, 2),
		news: make(chan struct{}, 1), left: make(chan struct{}), leave: make(chan struct{}), number: o.State.Last}
	if o.State.Era == o.Era { // LSNs of another era say nothing of this one
		s.skip = o.State.Ends
	}
	s.whole.Store(o.State.Last)
	s.events.Store(o.State.Events)
	s.unread.Store(o.State.Events)
	if !o.State.Empty() {
		s.oldest.Store(o.State.Oldest.UnixMicro())
	}
	return s
}

// Run begins. It ends with the context, or when nothing is spooled any more and the intake has ended; see Wait.
func (s *Spool) Run(ctx context.Context) {
	for _, work := range []func(context.Context){s.intake, s.read, s.sweep} {
		s.ended.Go(func() { work(ctx) })
	}
}

// Wait returns when all goroutines have ended.
func (s *Spool) Wait() { s.ended.Wait() }

// Batches delivers the stored batches in order. It is closed behind the last one; then the stream continues with Rest,
// unless Err is set.
func (s *Spool) Batches() <-chan *replication.Batch { return s.batches }

// Rest delivers what was read of the stream and not stored; it is closed behind the last of it.
func (s *Spool) Rest() <-chan *replication.Batch { return s.rest }

// Err is why the stream cannot be read on, once Batches is closed: what the decoder refuses.
func (s *Spool) Err() error {
	if s.taking() {
		return nil
	}
	return s.failed
}

// Taking reports whether the stream is being stored.
func (s *Spool) Taking() bool { return s.o.Stream != nil && s.taking() }

// Empty reports that nothing is spooled and that the stream is not stored any more.
func (s *Spool) Empty() bool { return s.empty.Load() }

// Events is how many events are spooled, those that were handed out and are not known to be settled included.
func (s *Spool) Events() int64 { return s.events.Load() }

// Unread is how many events are spooled and not handed out yet.
func (s *Spool) Unread() int64 { return s.unread.Load() }

// Oldest is the commit time of the oldest event, or one before it; ok is false when there is none.
func (s *Spool) Oldest() (at time.Time, ok bool) {
	if s.events.Load() == 0 {
		return at, false
	}
	return time.UnixMicro(s.oldest.Load()), true
}

// Leave ends the intake at the next end of a transaction; Batches is closed when all that it has stored is handed out.
func (s *Spool) Leave() { s.leaving.Do(func() { close(s.leave) }) }

// What the calls are for, as Called gets it.
const (
	storing  = "spool"
	reading  = "spool_read"
	deleting = "spool_delete"
)

// Calls are the names that Options.Called gets.
var Calls = []string{storing, reading, deleting}

// call makes one, and logs why it failed where that is news.
func (s *Spool) call(ctx context.Context, what string, do func() error) error {
	err := do()
	if err == nil {
		s.o.Called(what, nil)
	} else if ctx.Err() == nil && s.o.Called(what, err) {
		s.o.Logger.Warn().Err(err).Str("call", what).
			Msg("cannot store, read or delete spooled events; Postgres keeps what is not stored")
	}
	return err
}

// insist repeats a call until it succeeds; false: the context ended first.
func (s *Spool) insist(ctx context.Context, what string, do func() error) bool {
	for attempt := 1; ; attempt++ {
		if s.call(ctx, what, do) == nil {
			return true
		}
		if !pause(ctx, again.Delay(attempt, rand.Float64())) {
			return false
		}
	}
}

// pause reports whether the time was over before the context.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
