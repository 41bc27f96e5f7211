package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/run/spool"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/blockers"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/replication"
)

// This file says what a relay asks of its database, and how the real one answers. Nothing here keeps state.

// Postgres connects a relay to its database. The default connects to the servers of the configuration; tests and the
// simulator have others.
type Postgres interface {
	// OpenTables opens the SQL side; the first call of a method connects.
	OpenTables(ctx context.Context, c store.Config) (Tables, error)
	// OpenStream takes the slot and starts its stream; nothing is read before Run. See [replication.Open].
	OpenStream(ctx context.Context, c replication.Config) (Stream, error)

	// The commands of a replication connection of their own; see package replication.
	bootstrap.Server
}

// Stream is a replication connection with a started stream. [replication.Session] documents its methods.
type Stream interface {
	Granted() replication.Grant
	Batches() <-chan *replication.Batch
	Received() outbox.LSN
	Run(ctx context.Context, confirmed func() outbox.LSN) error
	Close()
}

// Tables is the SQL side of a relay. [store.Store] documents its methods.
type Tables interface {
	Close()

	blockers.Tables
	bootstrap.Tables
	meter.Tables
	reconcile.DryTables
	reconcile.Tables
	settle.Tables
	spool.Tables
	upkeep.Tables

	Clock(ctx context.Context) (time.Time, error)

	// The state and the fence.
	TakeOver(ctx context.Context, walsenderPID uint32, timeline int32) (epoch int64, listed bool, err error)
	SaveProgress(ctx context.Context, confirmed outbox.LSN) error
	CleanStop(ctx context.Context, confirmed outbox.LSN) error

	// Rows that are older than the slot.
	SnapshotCatchUp(ctx context.Context) (rows int64, err error)
	ReusedAside(ctx context.Context, limit int) ([]store.Aside, error)
	CatchUpRows(ctx context.Context, afterRow uint64, limit int) ([]store.CatchUpRow, error)
	FinishCatchUp(ctx context.Context) error

	// What is recorded of an event, and what is parked.
	Recognize(ctx context.Context, events []store.Sighting) ([]store.Recognition, error)
	CountDead(ctx context.Context) (int64, error)
	OldestParked(ctx context.Context) (time.Time, error)
	ParkedAmong(ctx context.Context, events []store.Sighting) (map[int]store.Lane, error)

	// How far the topics are journaled.
	AddTopics(ctx context.Context, topics []string) error
	SaveOffsets(ctx context.Context, offsets []store.Offset) error
	Tails(ctx context.Context) ([]store.TopicTail, error)
}

// server is the Postgres that the configuration names.
type server struct{}

func (server) OpenTables(ctx context.Context, c store.Config) (Tables, error) {
	s, err := store.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (server) OpenStream(ctx context.Context, c replication.Config) (Stream, error) {
	s, err := replication.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (server) Identify(ctx context.Context, c replication.Config) (replication.System, error) {
	return replication.Identify(ctx, c)
}

func (server) CreateSlot(ctx context.Context, c replication.Config) (outbox.LSN, error) {
	return replication.CreateSlot(ctx, c)
}

func (server) DropSlot(ctx context.Context, c replication.Config) error {
	return replication.DropSlot(ctx, c)
}
