package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// keepPast makes the outbox a partitioned one, and beside it a table with the events 11 to 30, of three days ago.
func (b *bed) keepPast() {
	b.t.Helper()
	b.pg.Exec(b.t, `DROP TABLE outbox_events CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;
		CREATE TABLE outbox_events (seq bigint, id uuid DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text,
			event_type text,
			payload jsonb, headers jsonb, created_at timestamptz DEFAULT clock_timestamp(), published_at timestamptz,
				PRIMARY KEY (id, created_at))
			PARTITION BY RANGE (created_at);
		CREATE INDEX ON outbox_events (created_at);
		CREATE TABLE present PARTITION OF outbox_events FOR VALUES FROM (now() - interval '1 day')
			TO (now() + interval '1 day');
		CREATE TABLE past (LIKE outbox_events INCLUDING ALL)`)
	b.pg.Exec(b.t, `INSERT INTO past (seq, aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT i, 'order', 'k' || i % 3, 'made', jsonb_build_object('n', i + 10), now() - interval '3 days'
			FROM generate_series(1, 20) i`)
}

// attachPast makes that table a partition.
func (b *bed) attachPast() {
	b.t.Helper()
	b.pg.Exec(b.t, `ALTER TABLE outbox_events ATTACH PARTITION past
		FOR VALUES FROM (now() - interval '9 days') TO (now() - interval '1 day' - interval '1 hour')`)
}

// cutOff is a Postgres that breaks off the first looks at a whole table.
type cutOff struct {
	relay.RealPostgres
	left atomic.Int64
}

func (c *cutOff) OpenTables(ctx context.Context, sc store.Config) (relay.Tables, error) {
	tables, err := c.RealPostgres.OpenTables(ctx, sc)
	return cutOffTables{tables, c}, err
}

type cutOffTables struct {
	relay.Tables
	c *cutOff
}

func (t cutOffTables) UnrecordedIn(ctx context.Context, from, to int64, limit int) ([][]byte, error) {
	if t.c.left.Add(-1) >= 0 {
		return nil, context.DeadlineExceeded
	}
	return t.Tables.UnrecordedIn(ctx, from, to, limit)
}

// timedOut are real tables in which a round that reads far back does not end in its time.
type timedOut struct{ relay.RealPostgres }

func (p timedOut) OpenTables(ctx context.Context, c store.Config) (relay.Tables, error) {
	tables, err := p.RealPostgres.OpenTables(ctx, c)
	return timedOutTables{tables}, err
}

type timedOutTables struct{ relay.Tables }

func (t timedOutTables) UnrecordedSince(ctx context.Context, since time.Time, limit int) ([][]byte, error) {
	if time.Since(since) > time.Hour {
		return nil, fmt.Errorf("look for unrecorded rows: %w", &pgconn.PgError{Code: "57014"})
	}
	return t.Tables.UnrecordedSince(ctx, since, limit)
}

// More rows than one statement can read in its time are behind the horizon, as after a long outage. Breaks it catches:
// rounds that begin again, and again do not end; a horizon that stays where it was.
func TestRoundThatDoesNotEndIsASweep(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	b.started()
	b.hide(many(1, 5, 3))
	b.pg.Exec(t, "UPDATE cdc_relay_state SET swept_at = now(), horizon = now() - interval '2 hours'")
	b.postgres = timedOut{}
	r, stop := b.start()
	b.waitRecorded(5)
	b.waitQuery("the horizon moves", "SELECT horizon > now() - interval '1 hour' FROM cdc_relay_state", "true")
	b.hide(many(6, 5, 3)) // for a round
	b.waitRecorded(10)
	b.wantLate("outbox.event.order", 1, 10)
	b.waitReady(r)
	if age := metric(t, r, "outbox_audited_until_seconds"); age > 60 {
		t.Errorf("outbox_audited_until_seconds: got %v", age)
	}
	mustStop(t, stop)
}

// A partition is attached, and the look at the whole table is cut off, or the stream ends before anybody has looked.
// Break it catches: rows of the partition that wait for the sweep of the next day. Seen to fail, each, with the look
// taken for done when it begins, and with a session that knows of no partitions but those that it begins with.
func TestRowsOfAnAttachedPartitionArePublishedThoughLooksAreCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cutOff  int64
		drift   time.Duration
		restart bool
	}{
		{"the look", 1, 200 * time.Millisecond, false},
		{"the session", 0, time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newAuditBed(t)
			postgres := &cutOff{}
			postgres.left.Store(c.cutOff)
			b.postgres = postgres
			b.c.Drift.Interval = config.Duration(c.drift)
			b.keepPast()
			r, stop := b.start()
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, many(1, 10, 3))
			b.waitRecorded(10)
			b.attachPast()
			if c.restart {
				b.pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "+
					"WHERE slot_name = '"+b.c.Postgres.Slot+"'")
			}
			b.waitRecorded(30)
			b.wantLate("outbox.event.order", 11, 30)
			b.wantNumbers("outbox.event.order", 30)
			mustStop(t, stop)
		})
	}
}
