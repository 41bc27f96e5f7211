package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Workload says what load to write. Everything an application may do with an outbox occurs in it: single and multi-row
// inserts, COPY, mixed transaction sizes, savepoints and transactions that are rolled back, two-phase commit, rows
// deleted by their own transaction, and long transactions among short ones. Zero fields take the defaults named there.
type Workload struct {
	Table        string   // public.outbox_events, in the shape that `cdc-relay init` gives it
	Types        []string // aggregate types: order
	Aggregates   int      // per type: 100; below 4 they are fought for
	Writers      int      // 4
	Events       int      // stop after so many committed events, or a few more; 0 = until Stop
	Rate         int      // committed events per second of all writers together; 0 = as fast as they can
	PayloadBytes int      // filler in each payload: 0
	Seed         uint64   // 1
	Keyless      int      // one event of so many has no aggregate_id; 0 = none
	Tombstones   int      // one event of so many has no payload; 0 = none
	OnlyKept     bool     // no row is deleted by its own transaction: a row that a slot does not keep cannot be caught up
}

// Load is a running workload.
type Load struct {
	pg       *PG
	name     string // begins the names of its prepared transactions
	workload Workload
	stop     context.CancelFunc
	writers  sync.WaitGroup

	committed atomic.Int64

	turns sync.RWMutex // a writer has it while it writes a transaction, a pause for itself
	began time.Time    // guarded alternately; later by what pauses took

	mu      sync.Mutex
	failure error // of the first writer that gave up; guarded by mu
}

// StartWorkload starts the writers. They survive crashes of Postgres: an event whose commit was cut off is in the truth
// exactly if it is in the outbox, because both are written by one transaction.
func StartWorkload(t testing.TB, pg *PG, w Workload) *Load {
	t.Helper()
	w.setDefaults()
	pg.Exec(t, truthSchema)
	conn := pg.Connect(t)
	ids := make([]string, w.Aggregates)
	for n := range ids {
		ids[n] = aggregate(1 + n)
	}
	for _, aggregateType := range w.Types {
		_, err := conn.Exec(t.Context(),
			`INSERT INTO truth_lane SELECT $1, id FROM unnest($2::text[]) id ON CONFLICT DO NOTHING`, aggregateType, ids)
		if err != nil {
			t.Fatalf("prepare the truth: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &Load{pg: pg, name: Unique(t, "load"), workload: w, stop: cancel, began: time.Now()}
	for n := range w.Writers {
		l.writers.Go(func() {
			if err := newWriter(l, n).run(ctx); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.failure = errors.Join(l.failure, fmt.Errorf("writer %d: %w", n, err))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		l.writers.Wait()
	})
	return l
}

// Write runs a bounded workload to its end.
func Write(t testing.TB, pg *PG, w Workload) {
	t.Helper()
	StartWorkload(t, pg, w).Wait(t)
}

func (w *Workload) setDefaults() {
	if w.Table == "" {
		w.Table = "public.outbox_events"
	}
	if len(w.Types) == 0 {
		w.Types = []string{"order"}
	}
	if w.Aggregates == 0 {
		w.Aggregates = 100
	}
	if w.Writers == 0 {
		w.Writers = 4
	}
	if w.Seed == 0 {
		w.Seed = 1
	}
}

// Committed is the number of events that the writers know to be committed.
func (l *Load) Committed() int { return int(l.committed.Load()) }

// Wait waits until Events are committed.
func (l *Load) Wait(t testing.TB) {
	t.Helper()
	l.writers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		t.Fatalf("write the workload: %v", l.failure)
	}
}

// Stop ends the writers, each after its present transaction, and waits for them.
func (l *Load) Stop(t testing.TB) {
	t.Helper()
	l.stop()
	l.Wait(t)
}

// Pause lets the writers end their transactions and begin none until resume is called, which must be. What they did not
// write in the meantime they do not make up for.
func (l *Load) Pause() (resume func()) {
	l.turns.Lock()
	since := time.Now()
	return func() {
		l.began = l.began.Add(time.Since(since))
		l.turns.Unlock()
	}
}

// WaitCommitted waits until the writers have committed n events more than at the call.
func (l *Load) WaitCommitted(t testing.TB, n int, within time.Duration) {
	t.Helper()
	want := l.Committed() + n
	Eventually(t, within, "load", func(context.Context) string {
		if got := l.Committed(); got < want {
			return fmt.Sprintf("%d events committed, want %d", got, want)
		}
		return ""
	})
}

// enough reports that no further transaction is wanted.
func (l *Load) enough() bool {
	return l.workload.Events > 0 && l.Committed() >= l.workload.Events
}

// pace waits until the rate allows more events.
func (l *Load) pace(ctx context.Context) {
	if l.workload.Rate == 0 {
		return
	}
	l.turns.RLock()
	due := l.began.Add(time.Duration(l.committed.Load()) * time.Second / time.Duration(l.workload.Rate))
	l.turns.RUnlock()
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(due)):
	}
}

// connect opens a writer's session, again and again while Postgres is away.
func (l *Load) connect(ctx context.Context) (*pgx.Conn, error) {
	for {
		conn, err := pgx.Connect(ctx, l.pg.URL)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
