package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/emit"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two transactions of one aggregate that overlap are counted, with the ids of both; with emit's lock the second one
// waits, and nothing is. Breaks it catches: a relay that does not look, an emit that takes no lock. Seen to fail with
// the dispatcher's call of Note taken out, which leaves no report, and with emit's lock taken out.
func TestInterleavedWritersAreCountedAndALockPreventsThem(t *testing.T) {
	orders := harness.Postgres(t)
	relay, _ := relayed(t, orders)
	orders.Exec(t, emit.SQL("public", "public.outbox_events"))
	db := pool(t, orders.URL)

	first, second := overlap(t, db, "a", false)
	got := interleaved(t, relay, 2)
	if got.Total != 1 || len(got.Last) != 1 || got.Last[0].Event != first || got.Last[0].Before != second {
		t.Errorf("two that overlap: got %+v, want 1, %s behind %s", got, first, second)
	}
	overlap(t, db, "b", true)
	if got := interleaved(t, relay, 4); got.Total != 1 {
		t.Errorf("two that lock: got %d interleaved, want no more", got.Total-1)
	}
}

// overlap has one transaction emit, then another one, and commits the second one first, if it can.
func overlap(t *testing.T, db *pgxpool.Pool, aggregate string, lock bool) (first, second string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	event := emit.Event{AggregateType: "order", AggregateID: aggregate, Type: "OrderPlaced", Payload: 1, Lock: lock}
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // else the pool's end would wait for it
	if first, err = emit.Emit(ctx, tx, event); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
			second, err = emit.Emit(ctx, tx, event)
			return err
		})
	}()
	if lock {
		waits(ctx, t, db, done)
	} else if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if lock {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return first, second
}

// waits returns when a transaction waits for a lock; it fails when that has ended.
func waits(ctx context.Context, t *testing.T, db *pgxpool.Pool, ended <-chan error) {
	t.Helper()
	const locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
	for n := 0; n == 0; {
		if err := db.QueryRow(ctx, locks).Scan(&n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("the second transaction did not wait for the first one (%v)", err)
		default:
		}
	}
}

type report struct {
	Total int
	Last  []struct{ Event, Before string }
}

// interleaved returns the relay's report once it has received so many events.
func interleaved(t *testing.T, relay *harness.Relay, events int) (found report) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the relay has received the events", func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, relay.URL+"/api/v1/status", nil)
		if err != nil {
			return err.Error()
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		var status struct {
			Received    int `json:"events_settled_total"`
			Interleaved *report
		}
		if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
			return err.Error()
		}
		if status.Received < events || status.Interleaved == nil {
			return fmt.Sprintf("%d events, interleaved %v", status.Received, status.Interleaved)
		}
		found = *status.Interleaved
		return ""
	})
	return found
}
