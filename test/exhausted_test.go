package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Others take every connection that the server has, and the relay has one. Breaks it catches: a relay whose parts wait
// for each other when the pool is small; one that ends, halts, or forgets what it has sent, when it is let in no more.
// Seen to fail with a refused connection taken for a halt.
func TestExhaustedConnectionsAreWaitedFor(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_connections": "20"}})
	s := startScenario(t, pg, harness.Kafka(t), "postgres.pool_size", 1)
	s.load(t, harness.Workload{Events: 500, Writers: 2}).Wait(t)
	s.settled(t)
	admin := pg.Connect(t)
	writer := pg.Connect(t)
	refused := s.hog(t, func() {
		sql := `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name
			LIKE 'cdc-relay%'`
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		const insert = `WITH e AS (INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers,
			created_at)
			VALUES (gen_random_uuid(), 'order', 'a1', 'changed', '{"n": 1}', '{"traceparent": "t"}', date_trunc('milliseconds',
			now())) RETURNING *),
			l AS (UPDATE truth_lane SET seq = seq + 1 WHERE aggregate_type = 'order' AND aggregate_id = 'a1' RETURNING
			truth_lane.seq)
			INSERT INTO truth SELECT e.id, e.aggregate_type, e.aggregate_id, l.seq, e.event_type, e.payload, 't', e.created_at
			FROM e, l`
		for range 50 {
			if _, err := writer.Exec(t.Context(), insert); err != nil {
				t.Fatal(err)
			}
		}
	})
	s.relay.WaitReady(t, time.Minute)
	s.settled(t)
	s.judge(t, 0)
	t.Logf("no connection for the relay for 2 s; it was refused %d times", refused)
	if refused == 0 {
		t.Error("the relay was never refused: the scenario shows nothing")
	}
	if strings.Contains(s.relay.Log(t), `"message":"halted"`) {
		t.Error("the relay halted: nobody has to do anything about connections that come back")
	}
}

// hog takes every connection that is free or becomes free, for 2 s from the time the relay complains on, and gives them
// back.
func (s *scenario) hog(t *testing.T, meanwhile func()) (refused int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	full := make(chan struct{}, 1)
	go func() {
		defer close(ended)
		var taken []*pgx.Conn
		for ctx.Err() == nil {
			conn, err := pgx.Connect(ctx, s.pg.URL)
			if err == nil {
				taken = append(taken, conn)
				continue
			}
			select {
			case full <- struct{}{}:
			default:
			}
		}
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
	}()
	defer func() { cancel(); <-ended }()
	<-full
	meanwhile()
	harness.Eventually(t, time.Minute, "the relay is refused", func(context.Context) string {
		if !strings.Contains(s.relay.Log(t), "53300") {
			return "not yet"
		}
		return ""
	})
	hold(t, 2, func() int { return 0 })
	return strings.Count(s.relay.Log(t), "53300")
}
