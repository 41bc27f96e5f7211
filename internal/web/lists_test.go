package web_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Many ask for a list that is slow. Break it catches: lists that take all of the relay's connections, so that the lease
// cannot be proved and nothing is journaled. Seen to fail with each list read at once: 4 waited.
func TestSlowListsLeaveConnectionsToTheRelay(t *testing.T) {
	t.Parallel()
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0"})
	locker, err := s.pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = locker.Exec(t.Context(), "LOCK TABLE outbox_events_dlq IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	for range 8 {
		asked.Go(func() { d.try("GET", "/api/v1/dlq", "") })
	}
	const waiting = `SELECT (SELECT count(*) FROM cdc_relay_journal) || ' ' || count(*) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%last_error%'`
	most, journaled := 0, 0
	look := func(ctx context.Context) error {
		n := 0
		got, err := s.pg.TryQuery(ctx, waiting)
		if err == nil {
			_, err = fmt.Sscan(got, &journaled, &n)
		}
		most = max(most, n)
		return err
	}
	harness.Eventually(t, 30*time.Second, "lists wait for the lock", func(ctx context.Context) string {
		if err := look(ctx); err != nil || most < 2 {
			return fmt.Sprintf("%d wait, %v", most, err)
		}
		return ""
	})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'k', 'made', '{}')`)
	harness.Eventually(t, 30*time.Second, "an event is journaled beside them", func(ctx context.Context) string {
		if err := look(ctx); err != nil || journaled == 0 {
			return fmt.Sprintf("%d are, %v", journaled, err)
		}
		return ""
	})
	if most > 2 {
		t.Errorf("lists read at once: got %d, want 2", most)
	}
	if err := locker.Rollback(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	asked.Wait()
}
