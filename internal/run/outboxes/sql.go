package outboxes

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// SQL is the SQL side of a slot, or of one of its outboxes. [store.Store] documents its methods.
type SQL interface {
	// Of the slot.
	Of(schema, table string) SQL
	Cover(members []SQL)
	Outboxes(ctx context.Context, p outbox.Pattern, publication string) ([]store.Named, error)
	Registered(ctx context.Context) ([]store.Named, error)
	States(ctx context.Context) (map[int32]*store.State, error)
	State(ctx context.Context) (*store.State, error)
	MemoriesOf(ctx context.Context, tables []store.Named) ([]store.Memory, error)
	CreatePublicationOf(ctx context.Context, name string, tables []store.Named) error
	ListsReady(ctx context.Context) error
	NoteBaseline(ctx context.Context) error
	CatchUpOf(ctx context.Context, sources []int32) error
	NextUnmarked(ctx context.Context, after int32) (source int32, err error)
	Deletable(ctx context.Context, retention time.Duration) ([]int32, error)
	Prunable(ctx context.Context, retention time.Duration) ([]int32, error)
	DeadPrunable(ctx context.Context, retention time.Duration) ([]int32, error)

	// Of both.
	Register(ctx context.Context, systemID string, timeline int32, tableOID uint32, phase string) (*store.State, error)
	FinishCatchUp(ctx context.Context) error
	StartRequest(ctx context.Context, r *store.Request) error

	// Of one outbox.
	Outbox(ctx context.Context) (store.Outbox, error)
	FormOf(other SQL, oid uint32) store.Outbox
	Know(st *store.State)
	NoteLeftOut(ctx context.Context) error
	Migrate(ctx context.Context) error
	CheckExpressions(ctx context.Context) error
	CheckPublication(ctx context.Context, name string) ([]store.Problem, error)
	CountUnrecorded(ctx context.Context, limit int64) (int64, error)
	SetBaseline(ctx context.Context) (rows int64, err error)
	SnapshotCatchUp(ctx context.Context) (rows int64, err error)
	ReusedAside(ctx context.Context, limit int) ([]store.Aside, error)
	CatchUpRows(ctx context.Context, afterRow uint64, limit int) ([]store.CatchUpRow, error)
	LateRows(ctx context.Context, ids [][]byte, limit int) ([]store.CatchUpRow, error)
	NothingToMark(ctx context.Context) (batches int, err error)
	MirrorStep(ctx context.Context, limit int) (rows int, more bool, err error)
	DeleteStep(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	PruneDropped(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	Prune(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	PruneDead(ctx context.Context, retention time.Duration, limit int) (rows int, more bool, err error)
	ShowDead(ctx context.Context, skip, limit int) (due, left int, err error)
	ShowRetried(ctx context.Context, skip, limit int) (due, left int, err error)
	AuditState(ctx context.Context) (store.AuditState, error)
	SaveHorizon(ctx context.Context, horizon time.Time) error
	SaveSweep(ctx context.Context, at time.Time) error
	UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error)
	UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error)
	ReplayDead(ctx context.Context, r *store.Request, from store.DeadCursor, limit int) (store.Step, error)
	DiscardDead(ctx context.Context, r *store.Request, from store.DeadCursor, limit int) (store.Step, error)
	RetryNow(ctx context.Context, r *store.Request, limit int) (int64, error)
	RepublishRows(ctx context.Context, r *store.Request, limit int) ([]store.CatchUpRow, error)
	Republish(ctx context.Context, r *store.Request, events []store.Parked) (parked int64, err error)
}

// Open makes Tables over the Store of the slot, which has the pattern.
func Open(root *store.Store, c config.Postgres, log zerolog.Logger) *Tables {
	chosen := root.Table()
	return Over(onServer{root}, outbox.Pattern{Schema: chosen.Schema, Table: chosen.Name}, c, log)
}

// Over is Open for another SQL side.
func Over(slot SQL, pattern outbox.Pattern, c config.Postgres, log zerolog.Logger) *Tables {
	return &Tables{slot: slot, pattern: pattern, config: c, log: log, byOID: map[uint32]*Outbox{},
		byNumber: map[int32]*Outbox{}, byForm: map[string]*Outbox{}, hidden: map[uint32]*halt.Error{},
		said: map[uint32]string{}, spared: map[uint32]time.Time{}}
}

// onServer is a Store as an SQL.
type onServer struct{ *store.Store }

func (s onServer) Of(schema, table string) SQL { return onServer{s.Store.Of(schema, table)} }

func (s onServer) Cover(members []SQL) {
	stores := make([]*store.Store, len(members))
	for i, m := range members {
		stores[i] = m.(onServer).Store
	}
	s.Store.Cover(stores)
}

func (s onServer) FormOf(other SQL, oid uint32) store.Outbox {
	return s.Store.FormOf(other.(onServer).Store, oid)
}
