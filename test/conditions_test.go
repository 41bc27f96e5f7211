package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// asking makes a condition for harness.Eventually from a query that is "" when it is met.
func (s *scenario) asking(t *testing.T, sql string) func(context.Context) string {
	t.Helper()
	conn := s.pg.Connect(t)
	return func(ctx context.Context) string {
		rows, err := conn.Query(ctx, sql)
		if err != nil {
			return err.Error()
		}
		said, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		if err != nil {
			return err.Error()
		}
		return said
	}
}

func (s *scenario) journaled(t *testing.T) func(context.Context) string {
	t.Helper()
	return s.asking(t, `SELECT CASE WHEN n = 0 THEN '' ELSE n || ' events are not in the journal' END
		FROM (SELECT (SELECT count(*) FROM truth) - (SELECT count(*) FROM cdc_relay_journal) AS n) s`)
}

func (s *scenario) marked(t *testing.T) func(context.Context) string {
	t.Helper()
	return s.asking(t, `SELECT CASE WHEN count(*) = 0 THEN '' ELSE count(*) || ' rows have no published_at' END
		FROM outbox_events WHERE published_at IS NULL`)
}

// restarted is met when the stream has been started again since there were so many restarts.
func (s *scenario) restarted(t *testing.T, before float64) func(context.Context) string {
	t.Helper()
	return func(context.Context) string {
		if now := s.relay.Metric(t, "cdc_stream_restarts_total"); now <= before {
			return fmt.Sprintf("cdc_stream_restarts_total is %v, as before", now)
		}
		return ""
	}
}

// lockJournal keeps the relay from recording what it publishes until the function that it returns is called.
func (s *scenario) lockJournal(t *testing.T) (unlock func()) {
	t.Helper()
	conn := s.pg.Connect(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN; LOCK TABLE cdc_relay_journal IN SHARE MODE")
	return func() { t.Helper(); exec("ROLLBACK") }
}
