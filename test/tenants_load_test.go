package test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// keysOfTenant is how many keys each tenant's events have; their names are those of every other tenant.
const keysOfTenant = 4

// tenant is one life of a schema with an outbox. A schema that is dropped and created again is another tenant.
type tenant struct {
	schema, name string // name says which life it is, and is the type of its events
	place        int    // in the order in which writers lock tenants
	early        int    // rows that the table had before the publication got it, all of the key "early"

	lanes [keysOfTenant]tenantLane
}

// tenantLane is a key of a tenant. A transaction has its lock from before its first insert until it has committed, so
// the order of the numbers is that of the commits.
type tenantLane struct {
	mu     sync.Mutex
	events int  // committed; guarded by mu
	closed bool // no more are written; guarded by mu
}

// committed returns how many events of the key are committed.
func (l *tenantLane) committed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}

// close ends the tenant's events. What is written by then is committed.
func (x *tenant) close() {
	for k := range x.lanes {
		l := &x.lanes[k]
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
	}
}

// events are all that the tenant has committed.
func (x *tenant) events() (n int) {
	for k := range x.lanes {
		n += x.lanes[k].committed()
	}
	return n + x.early
}

// tenantLoad writes events of tenants, by Zipf's law: with equal ids and keys for each of them. It writes no faster
// than the machine has them published.
type tenantLoad struct {
	pg        *harness.PG
	rate      int          // events per second of all writers
	published atomic.Int64 // records in the topic
	ahead     atomic.Int64 // events that may wait to be published

	committed atomic.Int64
	began     time.Time
	stop      context.CancelFunc
	writers   sync.WaitGroup

	mu      sync.Mutex
	due     time.Time // of the next transaction; guarded by mu
	live    []*tenant // the first ones have most of the events; guarded by mu
	failure error     // of the first writer that gave up; guarded by mu
}

// startTenantLoad starts the writers.
func startTenantLoad(t *testing.T, f *tenancy, rate int) *tenantLoad {
	t.Helper()
	const writers = 4
	pg := f.pg
	ctx, cancel := context.WithCancel(t.Context())
	l := &tenantLoad{pg: pg, rate: rate, live: slices.Clone(f.all), stop: cancel, began: time.Now()}
	l.bound()
	admin := f.kafka.Admin(t)
	l.writers.Go(func() {
		for ctx.Err() == nil {
			if ends, err := admin.ListEndOffsets(ctx, f.topic); err == nil { // else as it was
				records := int64(0)
				ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
				l.published.Store(records)
			}
			wait(ctx, 200*time.Millisecond)
		}
	})
	for n := range writers {
		conn := pg.Connect(t)
		l.writers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for ctx.Err() == nil {
				l.pace(ctx)
				if err := l.transaction(context.WithoutCancel(ctx), conn, random); err != nil {
					l.mu.Lock()
					defer l.mu.Unlock()
					l.failure = fmt.Errorf("writer %d: %w", n, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		l.writers.Wait()
	})
	return l
}

// bound lets no more events wait than four seconds bring at full rate.
func (l *tenantLoad) bound() { l.ahead.Store(int64(4 * l.rate)) }

// unbound lets any number of events wait, as while no relay runs.
func (l *tenantLoad) unbound() { l.ahead.Store(math.MaxInt64) }

// pace waits until the next transaction is due. What the writers are behind with, they make up for at most 5 s of.
func (l *tenantLoad) pace(ctx context.Context) {
	for ctx.Err() == nil && l.committed.Load()-l.published.Load() > l.ahead.Load() {
		wait(ctx, 20*time.Millisecond)
	}
	l.mu.Lock()
	if earliest := time.Now().Add(-5 * time.Second); l.due.Before(earliest) {
		l.due = earliest
	}
	due := l.due
	l.mu.Unlock()
	wait(ctx, time.Until(due))
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// part is what a transaction writes of one key.
type part struct {
	of   *tenant
	key  int
	rows int
}

// pick chooses keys of one to three tenants, in the order of their locks.
func (l *tenantLoad) pick(random *rand.Rand) (parts []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	zipf := rand.NewZipf(random, 1.2, 8, uint64(len(l.live)-1))
	for range 1 + random.IntN(3) {
		p := part{l.live[zipf.Uint64()], random.IntN(keysOfTenant), 1 + random.IntN(4)}
		if !slices.ContainsFunc(parts, func(q part) bool { return q.of == p.of && q.key == p.key }) {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return (a.of.place-b.of.place)*keysOfTenant + a.key - b.key })
	return parts
}

func (l *tenantLoad) transaction(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	sql, n := "", 0
	var written []part
	for _, p := range l.pick(random) {
		lane := &p.of.lanes[p.key]
		lane.mu.Lock()
		defer lane.mu.Unlock()
		if lane.closed {
			continue
		}
		sql += tenantInsert(p.of, p.key, lane.events, p.rows)
		written = append(written, p)
		n += p.rows
	}
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil { // one transaction
		return fmt.Errorf("insert: %w", err)
	}
	for _, p := range written {
		p.of.lanes[p.key].events += p.rows
	}
	l.committed.Add(int64(n))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = l.due.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	return nil
}

// tenantInsert inserts rows of the key behind the first after ones.
func tenantInsert(x *tenant, key, after, rows int) string {
	var sql strings.Builder
	fmt.Fprintf(&sql, "INSERT INTO %s.outbox_events (id, aggregate_type, aggregate_id, event_type, payload) VALUES ",
		x.schema)
	for n := after + 1; n <= after+rows; n++ {
		if n > after+1 {
			sql.WriteString(", ")
		}
		fmt.Fprintf(&sql, `('00000000-0000-7000-8000-%04d%08d', 'order', 'k%d', '%s', '{"n": %d, "pad": "%s"}')`, key, n,
			key, x.name, n, strings.Repeat("x", 150))
	}
	return sql.String() + ";"
}

// add lets the writers write events of the tenant, too.
func (l *tenantLoad) add(x *tenant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = append(l.live, x)
}

// remove ends the events of the tenant.
func (l *tenantLoad) remove(x *tenant) {
	l.mu.Lock()
	l.live = slices.DeleteFunc(l.live, func(y *tenant) bool { return x == y })
	l.mu.Unlock()
	x.close()
}

// waitCommitted waits until the writers have committed n events more than at the call.
func (l *tenantLoad) waitCommitted(t *testing.T, n int) {
	t.Helper()
	want := l.committed.Load() + int64(n)
	harness.Eventually(t, 5*time.Minute, "load", func(context.Context) string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failure != nil {
			t.Fatal(l.failure)
		}
		if got := l.committed.Load(); got < want {
			return fmt.Sprintf("%d events committed, want %d; %d records in the topic", got, want, l.published.Load())
		}
		return ""
	})
}

// end ends the writers.
func (l *tenantLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.writers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		t.Fatal(l.failure)
	}
	t.Logf("%d events in %v: %.0f/s; load of the machine %s", l.committed.Load(),
		time.Since(l.began).Round(time.Second), float64(l.committed.Load())/time.Since(l.began).Seconds(),
		harness.LoadAverage())
}
