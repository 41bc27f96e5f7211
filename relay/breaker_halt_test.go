package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/test/harness"
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
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 5, Ratio: 0, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	<-u.asked
	u.told <- struct{}{}
	b.waitRole(r, relay.RoleActive)
	b.flood(6)
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

// flood commits so many events that cannot be messages.
func (b *bed) flood(n int) {
	b.t.Helper()
	b.pg.Exec(b.t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'k' || i %% 7, 'made', '{}', '[]' FROM generate_series(1, %d) i`, n))
}

// More events wait for the breaker than the settler takes in, so the dispatcher waits, too. Break it catches: a stop
// that waits out its grace then, and fails because of it. Seen to fail with a stop that asks for the breaker only when
// the stream is no longer read.
func TestAStopInAFloodDoesNotWaitOutItsGrace(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.ShutdownGrace = config.Duration(45 * time.Second)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 200, Ratio: 0, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.flood(5000)
	b.waitHalt(r, relay.HaltFlood)
	harness.Eventually(t, bedPatience, "as much is in flight as may be", func(context.Context) string {
		if n := r.Status().InFlight; n < 1000 {
			return fmt.Sprintf("%d events are in flight", n)
		}
		return ""
	})
	begun := time.Now()
	mustStop(t, stop)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the stop took %v of a grace of 45 s", took)
	}
	b.staysDead(200)
}

// Dead letters that waited for Postgres are written while another process has the slot, and then they are a flood.
// Break it catches: a relay that goes on halted though halts are to end the process. Seen to fail with the breaker's
// halt shown, and no more, by the session that comes after it.
func TestFloodThatNoSessionSawEndsTheNextOne(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.OnHalt = config.OnHaltExit
	// More than are written at once.
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 20, Ratio: 0, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	conn := b.pg.Connect(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE outbox_events_dlq IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	b.flood(60)
	harness.Eventually(t, bedPatience, "the events are in flight", func(context.Context) string {
		if n := r.Status().InFlight; n != 60 {
			return fmt.Sprintf("%d events are in flight", n)
		}
		return ""
	})
	other := b.takeSlot()
	b.waitRole(r, relay.RoleStandby)
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	b.waitDead(20)
	other.Close()
	b.waitRole(r, relay.RoleStopping)
	if err := stop(); !isHalt(err, relay.HaltFlood) {
		t.Errorf("Run: got %v, want halt %s", err, relay.HaltFlood)
	}
	b.staysDead(20)
}

// takeSlot ends the stream of who has the slot, and has it.
func (b *bed) takeSlot() *replication.Session {
	b.t.Helper()
	c := relay.ReplicationConfig(b.c)
	for {
		b.pg.Exec(b.t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND slot_name = '"+
			b.c.Postgres.Slot+"'")
		s, err := replication.Open(b.t.Context(), c)
		if err == nil {
			b.t.Cleanup(s.Close)
			return s
		}
		if _, busy := errors.AsType[*replication.SlotBusyError](err); !busy {
			b.t.Fatal(err)
		}
	}
}
