package packages

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The database is put back when a window's events are decided and their offsets are about to be noted: to a moment with
// the same offsets, so that these do not tell. Breaks it catches: offsets that are noted after a look for the events in
// an earlier transaction, with which each language lost an event.
func TestADatabaseRestoredBeforeANoteIsFilledUpAgain(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		f := newFlow(t, w)
		f.setBackBeforeANote(t, f.run(t), f.send)
	})
}

// As with Kafka.
func TestADatabaseRestoredBeforeANoteIsFilledUpAgainFromALog(t *testing.T) {
	harness.Full(t)
	onBrokers(t, func(t *testing.T, f *brokerFlow) {
		f.emit(t, 1) // a stream exists from now on
		d := f.read(t)
		f.decided(t, 1, d)
		f.setBackBeforeANote(t, d, f.emit)
	}, "rabbitmq", "bullmq")
}

func (f *flow) setBackBeforeANote(t *testing.T, d *driver, send func(t *testing.T, n int)) {
	t.Helper()
	const tries = 10 // a lease that waits for the same lock can keep the note back
	for n := 1; !f.isSetBack(t, send); n++ {
		if n == tries {
			t.Fatalf("no note came within 2 s of its events' effects, in %d tries", tries)
		}
		f.decided(t, f.sent, d)
	}
	send(t, 50)
	f.decided(t, f.sent, d)
	f.judge(t)
}

// isSetBack sends an event and undoes what the database has of it while the note of its offset waits. false: no note
// came.
func (f *flow) isSetBack(t *testing.T, send func(t *testing.T, n int)) bool {
	t.Helper()
	handlers := f.locked(t, "effect")
	send(t, 1)
	f.becomes(t, "the handler runs", waits("INSERT INTO effect"), "1")
	notes := f.locked(t, "inbox_offset")
	if err := handlers.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.becomes(t, "the event has its effect", fmt.Sprint("SELECT count(*) FROM effect WHERE n = ", f.sent), "1")
	waiting := false
	for began := time.Now(); !waiting && time.Since(began) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
		waiting = f.pg.Query(t, waits("%next_offset = greatest(")) != "0"
	}
	if waiting {
		_, err := notes.Exec(t.Context(), fmt.Sprintf(`WITH e AS (DELETE FROM effect WHERE n = %d RETURNING id)
			DELETE FROM inbox_event USING e WHERE event_id = e.id`, f.sent))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := notes.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return waiting
}

// waits counts the statements that begin so and wait for a lock.
func waits(statement string) string {
	return fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE '%s%%' AND wait_event_type = 'Lock'`, statement)
}

// locked begins a transaction beside which others only read a table.
func (f *flow) locked(t *testing.T, table string) pgx.Tx {
	t.Helper()
	tx, err := f.pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+table+" IN EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func (f *flow) becomes(t *testing.T, what, query, want string) {
	t.Helper()
	harness.Eventually(t, time.Minute, what, func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, query)
		if err != nil || got != want {
			return fmt.Sprint(got, err)
		}
		return ""
	})
}
