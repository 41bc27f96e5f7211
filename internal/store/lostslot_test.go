package store_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a catch-up that begins again under another relay, which has made a new slot since ours was seen to be
// gone (seen to fail without the condition); one that never begins, though another slot is there.
func TestCatchUpOfALostSlotBeginsOnlyWhileItIsLost(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	conn := takeOver(t, pg, c, s)
	listRows(t, s)
	must(t, "finish", s.FinishCatchUp(t.Context()))
	if begun, err := s.BeginCatchUpOfLost(t.Context()); begun || err != nil {
		t.Errorf("with the slot: got begun %t, %v; want false", begun, err)
	}
	pg.Exec(t, neighbourSQL)
	loseSlot(t, pg, c, conn)
	pg.Exec(t, fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, harness.Unique(t, "another")))
	if begun, err := s.BeginCatchUpOfLost(t.Context()); !begun || err != nil {
		t.Errorf("without the slot: got begun %t, %v; want true", begun, err)
	}
	if got := pg.Query(t, `SELECT string_agg(phase, ' ' ORDER BY slot = 'neighbour') FROM cdc_relay_state`); got !=
		"catch_up stream" {
		t.Errorf("phase, and the neighbour's: got %s, want catch_up stream", got)
	}
}

// Break caught: a slot that is there and has lost its WAL, and that no one takes for lost. Seen to fail with what
// became of its WAL not looked at.
func TestCatchUpBeginsForASlotThatIsThereAndLost(t *testing.T) {
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_slot_wal_keep_size": "1MB"}})
	c := usual(t, pg)
	s := registered(t, c)
	conn := takeOver(t, pg, c, s)
	listRows(t, s)
	must(t, "finish", s.FinishCatchUp(t.Context()))
	must(t, "end the stream", conn.Close(t.Context()))
	slotFree(t, pg, c.Slot)
	for range 3 {
		pg.Exec(t, `SELECT pg_switch_wal()`)
		pg.Exec(t, `SELECT pg_logical_emit_message(false, 'fill', 'the next segment')`)
	}
	pg.Exec(t, `CHECKPOINT`)
	if got := pg.Query(t, `SELECT wal_status FROM pg_replication_slots`); got != "lost" {
		t.Fatalf("the slot: got %s, want it lost", got)
	}
	if begun, err := s.BeginCatchUpOfLost(t.Context()); !begun || err != nil {
		t.Errorf("with the slot lost: got begun %t, %v; want true", begun, err)
	}
}

// Breaks caught: a catch-up that begins again under another relay, which has taken over since our look at the state
// (seen to fail without the condition); one that never begins.
func TestCatchUpBeginsAgainOnlyBeforeATakeOver(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	takeOver(t, pg, c, s)
	listRows(t, s)
	must(t, "finish", s.FinishCatchUp(t.Context()))
	if begun, err := s.BeginCatchUpSince(t.Context(), 0, true); begun || err != nil {
		t.Errorf("with the epoch before: got begun %t, %v; want false", begun, err)
	}
	if st, err := s.State(t.Context()); err != nil || st.Phase != store.Stream {
		t.Errorf("state: got %+v, %v, want phase stream", st, err)
	}
	if begun, err := s.BeginCatchUpSince(t.Context(), 1, true); !begun || err != nil {
		t.Errorf("with the present epoch: got begun %t, %v; want true", begun, err)
	}
	if st, err := s.State(t.Context()); err != nil || st.Phase != store.CatchUp || !st.CatchUpLate || st.CatchUpReady ||
		!st.Dirty {
		t.Errorf("state: got %+v, %v, want a late catch-up", st, err)
	}
}

// loseSlot drops the slot from which the connection streams.
func loseSlot(t *testing.T, pg *harness.PG, c store.Config, conn *pgconn.PgConn) {
	t.Helper()
	must(t, "end the stream", conn.Close(t.Context()))
	pg.Exec(t, fmt.Sprintf(
		`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '%[1]s'
 AND active_pid IS NOT NULL`, c.Slot))
	pg.Exec(t, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, c.Slot))
}
