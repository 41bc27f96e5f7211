package simulator

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// realTables are the relay's tables on a real Postgres, for one seed after the other. What is done there is done by a
// goroutine outside of the bubble, on connections from outside of it: a caller that waits for it is not durably
// blocked, so fake time stands.
type realTables struct {
	url  string
	jobs chan func()
	done chan struct{}

	// Owned by the goroutine that does the jobs.
	pool   *pgxpool.Pool // everybody who is not a relay
	main   *pgxpool.Conn
	stores []*store.Store
	seeds  int

	// Of the present seed, guarded by world.mu.
	w       *world
	writers map[*transaction]*pgxpool.Conn // of the application
	people  map[string]*store.Store        // by slot
	slots   string                         // as Postgres was told last
}

// newRealTables makes the relay's tables in a Postgres of their own, whose clock, WAL and slots are those of the world.
func newRealTables(t *testing.T) *realTables {
	t.Helper()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"autovacuum": "off"}})
	r := &realTables{url: pg.URL, jobs: make(chan func()), done: make(chan struct{})}
	ctx := context.Background()
	var err error
	if r.pool, err = pgxpool.New(ctx, pg.URL+"&pool_max_conns=100"); err != nil {
		t.Fatal(err)
	}
	if r.main, err = r.pool.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	r.exec(madeUpSQL)
	r.exec(outboxSQL)
	s, err := store.Open(ctx, r.config(relay.StoreConfig(config.Default())))
	if err == nil {
		err = s.Migrate(ctx)
		s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.exec(afterMigrationSQL)
	go func() {
		for job := range r.jobs {
			job()
			r.done <- struct{}{}
		}
		close(r.done)
	}()
	t.Cleanup(func() {
		close(r.jobs)
		<-r.done
		r.end()
		r.main.Release()
		r.pool.Close()
	})
	return r
}

//go:embed testdata/postgres.sql
var madeUpSQL string

const outboxSQL = `CREATE TABLE public.outbox_events (seq bigint, id text PRIMARY KEY, aggregate_type text,
 aggregate_id text, event_type text, payload jsonb, headers jsonb, created_at timestamptz, published_at timestamptz);
CREATE INDEX ON public.outbox_events (created_at)`

// Sources have the numbers that the made-up tables give them.
const afterMigrationSQL = `CREATE FUNCTION made_up.next_source() RETURNS integer VOLATILE LANGUAGE sql
 AS 'SELECT 1000 + count(*)::integer FROM public.cdc_relay_source';
ALTER TABLE public.cdc_relay_source ALTER source SET DEFAULT made_up.next_source()`

// config is a relay's, on the real server.
func (r *realTables) config(c store.Config) store.Config {
	c.URL, c.Password, c.PoolSize = r.url, nil, 1
	return c
}

func (r *realTables) exec(sql string, args ...any) {
	if _, err := r.main.Exec(context.Background(), sql, args...); err != nil {
		panic(fmt.Sprintf("%.300s: %v", sql, err))
	}
}

// outside has the job done; no fake time passes.
func (r *realTables) outside(job func()) {
	r.jobs <- job
	<-r.done
}

// sweepEvery is after how many seeds dead rows are done away with. To truncate makes files, which takes much longer
// than to delete.
const sweepEvery = 50

// emptySQL makes the tables as they were before the first seed, but for the room that they take.
const emptySQL = `DELETE FROM public.cdc_relay_state; DELETE FROM public.cdc_relay_source;
DELETE FROM public.cdc_relay_epoch; DELETE FROM public.cdc_relay_journal; DELETE FROM public.cdc_relay_journal_batch;
DELETE FROM public.cdc_relay_parked; DELETE FROM public.cdc_relay_spool;
DELETE FROM public.cdc_relay_catch_up; DELETE FROM public.cdc_relay_offset;
DELETE FROM public.cdc_relay_request; DELETE FROM public.outbox_events_dlq; DELETE FROM public.outbox_events;
DELETE FROM made_up.slots; ALTER SEQUENCE public.cdc_relay_request_id_seq RESTART`

// begin empties the tables for the next seed.
func (r *realTables) begin(w *world) reality {
	r.w, r.people, r.slots = w, map[string]*store.Store{}, ""
	r.outside(func() {
		r.end()
		r.exec(emptySQL)
		if r.seeds++; r.seeds%sweepEvery == 0 {
			r.exec(`VACUUM FULL`)
		}
	})
	return r
}

// end closes what the last seed has left.
func (r *realTables) end() {
	for _, conn := range r.writers {
		_, _ = conn.Exec(context.Background(), "ROLLBACK")
		conn.Release()
	}
	r.writers = map[*transaction]*pgxpool.Conn{}
	for _, s := range r.stores {
		s.Close()
	}
	r.stores = nil
}

func (r *realTables) newStore(c store.Config) (s *store.Store) {
	r.outside(func() {
		var err error
		if s, err = store.Open(context.Background(), r.config(c)); err != nil {
			panic(err)
		}
		r.stores = append(r.stores, s)
	})
	return s
}

func (r *realTables) open(t *tables, c store.Config) relay.Tables {
	both := twin{tables: t, real: r.newStore(c)}
	if t.w.profile.people {
		return askedTwin{both}
	}
	return both
}

// tell is a job that has the server know the time, the end of the WAL and the slots. Outside of the bubble it is
// another time.
func (r *realTables) tell() func() {
	s := r.w.server
	var list []map[string]any
	for _, name := range sortedKeys(s.slots) {
		slot := s.slots[name]
		row := map[string]any{"slot_name": name, "confirmed": slot.confirmed.String(), "wal_status": "reserved"}
		if slot.lost {
			row["wal_status"] = "lost"
		}
		if slot.holder != nil {
			row["active_pid"] = slot.holder.grant.PID
		}
		list = append(list, row)
	}
	slots, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	now, end := clock(), s.wal.end.String()
	return func() {
		if string(slots) != r.slots {
			r.slots = string(slots)
			r.exec(`SELECT made_up.tell_slots($1)`, r.slots)
		}
		r.exec(`UPDATE made_up.world SET now = $1, wal = $2::text::pg_lsn`, now, end)
	}
}

type callKey struct{}

// call is one call of package store that goes with one of the made-up tables.
type call struct {
	do     func(context.Context) error
	reads  bool // it changes nothing
	begun  bool
	failed error
}

// takes implements [reality].
func (r *realTables) takes(ctx context.Context, t *tables, name string, effect func(*database) error) error {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return effect(&t.w.server.db)
	}
	c.begun = true
	tell := r.tell()
	r.outside(func() {
		tell()
		c.failed = c.do(context.Background())
	})
	err := effect(&t.w.server.db)
	if got, want := kind(c.failed), kind(err); got != want {
		t.w.violate("p%d %s: the real tables say %q (%v), the made-up ones %q (%v)", t.p.number, name, got, c.failed, want,
			err)
	}
	if !c.reads {
		r.compare(fmt.Sprintf("p%d %s", t.p.number, name))
	}
	return err
}

// kind classifies errors as a relay does.
func kind(err error) string {
	for _, known := range []error{store.ErrFenced, store.ErrLeaseLost, store.ErrCannot} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "an error"
	}
	return ""
}

// compare fails the run where the tables do not hold the same. Called with world.mu held.
func (r *realTables) compare(after string) {
	if r.w.failure != "" {
		return
	}
	var real []string
	r.outside(func() { real = r.holds() })
	made := r.w.server.holds()
	slices.Sort(real)
	slices.Sort(made)
	if !slices.Equal(real, made) {
		r.w.violate("after %s the tables differ (- real, + made up):\n%s", after, cmp.Diff(real, made))
	}
}

//go:embed testdata/holds.sql
var holdsSQL string

// holds is a line for each fact in the real tables.
func (r *realTables) holds() []string {
	rows, err := r.main.Query(context.Background(), holdsSQL)
	if err != nil {
		panic(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		panic(err)
	}
	return lines
}
