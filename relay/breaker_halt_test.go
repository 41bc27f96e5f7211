package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
)

// unhurried is a Postgres that lists parked lanes, which a session asks for once it has taken over, when it is told to.
type unhurried struct {
	relay.RealPostgres
	asked chan struct{} // takes a token for each question
	told  chan struct{}
}

func (u *unhurried) OpenTables(ctx context.Context, c store.Config) (relay.Tables, error) {
	tables, err := u.RealPostgres.OpenTables(ctx, c)
	return unhurriedTables{tables, u}, err
}

type unhurriedTables struct {
	relay.Tables
	u *unhurried
}

func (t unhurriedTables) ParkedLanes(ctx context.Context) ([]store.Lane, int64, error) {
	select {
	case t.u.asked <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if err := await(ctx, t.u.told); err != nil {
		return nil, 0, err
	}
	return t.Tables.ParkedLanes(ctx)
}

// A flood is let die while the relay stands still for another reason, or comes out of that. Break it catches: a relay
// that calls itself active before it streams, so that the watch looks at a session that is not through with its start.
// Seen to fail with any halt taken for that of the flood.
func TestEndOfAFloodEndsNoOtherHalt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	u := &unhurried{asked: make(chan struct{}), told: make(chan struct{})}
	b.postgres = u
	b.c.DLQ.Breaker = config.Breaker{Count: 5, Ratio: 0, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	<-u.asked
	u.told <- struct{}{}
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'k' || i % 7, 'made', '{}', '[]' FROM generate_series(1, 6) i`)
	b.waitHalt(r, relay.HaltFlood)
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME TO away; SELECT pg_terminate_backend(active_pid) FROM "+
		"pg_replication_slots WHERE slot_name = '"+b.c.Postgres.Slot+"'")
	b.waitHalt(r, relay.HaltNotInitialised)
	b.pg.Exec(t, "ALTER TABLE away RENAME TO outbox_events")
	<-u.asked
	r.Resumed()
	b.waitDead(6) // the breaker is closed
	if role := r.Status().Role; role == relay.RoleActive {
		t.Errorf("role while the session starts: got %s", role)
	}
	close(u.told)
	b.waitReady(r)
	mustStop(t, stop)
}
