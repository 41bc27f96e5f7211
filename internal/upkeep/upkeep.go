// Package upkeep works on rows beside the path of the events: it marks or deletes published rows in the outbox, shows
// in others that their events failed, and prunes the journal, resolved dead letters and finished requests. No promise
// about an event depends on it: what is published is known from the journal alone. It sleeps while there is nothing to
// do and yields while the relay is behind. What needs a server to be tested is tested in package relay and in test/.
package upkeep

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
)

// Tables is the part of the store that upkeep uses; package store documents its methods.
type Tables interface {
	MirrorStep(ctx context.Context, limit int) (rows int, more bool, err error)
	MirrorLag(ctx context.Context) (events int64, age time.Duration, err error)
	DeleteStep(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	ShowDead(ctx context.Context, skip, limit int) (due, left int, err error)
	ShowRetried(ctx context.Context, skip, limit int) (due, left int, err error)
	Prune(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	PruneDead(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	PruneRequests(ctx context.Context, older time.Duration, limit int) (rows int, more bool, err error)
}

// Host is the relay whose rows these are. Its methods are safe for concurrent use.
type Host interface {
	HoldsSlot() bool           // only the process that holds the slot works on rows
	Active() bool              // it streams
	Behind() bool              // events wait, in the WAL, for the sink or for Postgres: they go first
	Progress() <-chan struct{} // gets a token when something was journaled
	// Owner is who holds the slot now, no one included: it is told the outcome of the call that begins now.
	Owner() (told func(error))
	Marked(rows int)                  // so many rows were marked or deleted, as they should
	CannotMark(err error) (news bool) // they were not; not news: it was said lately
}

// Keeper runs the four loops; each of its loops is one goroutine, and they share nothing.
type Keeper struct {
	c      config.Config
	tables Tables
	host   Host
	log    zerolog.Logger
}

// New makes a keeper that does nothing yet.
func New(c config.Config, tables Tables, host Host, log zerolog.Logger) *Keeper {
	return &Keeper{c: c, tables: tables, host: host, log: log}
}

// positionEvery is about how often the position is saved below which rows may be deleted.
const positionEvery = time.Second

// sleep reports whether the time was over before the context.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
