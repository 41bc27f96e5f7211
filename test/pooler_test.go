package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The SQL side goes through a pooler that gives each transaction another session; the stream goes past it. Breaks it
// catches: anything that is expected to outlive a transaction, or does: a setting, a prepared statement, a lock, a
// temporary table; a takeover that finds no sessions to end. Seen to fail with statements prepared by the driver (init
// does already), with a setting that is not for the transaction only, and with a takeover that ends no one.
func TestPoolerInBetweenChangesNothing(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pooled := harness.Pooler(t, pg)
	s := startScenario(t, pg, harness.Kafka(t), "postgres.url", pooled, "postgres.replication_url", pg.URL)
	load := s.load(t, harness.Workload{Rate: 500})
	load.WaitCommitted(t, 500, time.Minute)
	zombie := s.writesOn(t, pooled)
	s.relay.Kill9()
	s.start(t)
	if _, err := zombie.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("a transaction of the epoch before outlived the takeover")
	}
	load.WaitCommitted(t, 500, time.Minute)
	s.relay.Stop(t)
	s.start(t)
	load.WaitCommitted(t, 300, time.Minute)
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	s.relay.Stop(t)
	leftBehind(t, pooled)
	t.Logf("through %s", harness.PoolerVersion(t))
}

// writesOn is a session in the middle of a write under the fence and the name of the relay's present epoch, as a
// process has it that is frozen there.
func (s *scenario) writesOn(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	const named = `SELECT coalesce(max(application_name), '') FROM pg_stat_activity WHERE application_name ~
		'^cdc-relay/[1-9]' AND datname = current_database()`
	var name string
	harness.Eventually(t, time.Minute, "a session of the relay carries its epoch", func(context.Context) string {
		if name = s.pg.Query(t, named); name == "" {
			return "there is none"
		}
		return ""
	})
	conn := connectPooled(t, url, name)
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT FROM cdc_relay_epoch FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// leftBehind fails on what outlived its transaction in the pooler's sessions, which are taken all at once.
func leftBehind(t *testing.T, url string) {
	t.Helper()
	// The pooler itself keeps these five as each of its clients has them.
	const query = `SELECT coalesce(string_agg(what, ', '), '') FROM (
		SELECT 'setting ' || name AS what FROM pg_settings WHERE source = 'session'
		 AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')
		UNION ALL SELECT 'prepared statement ' || name FROM pg_prepared_statements
		UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
		UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()) AS found`
	for range harness.PoolerSessions {
		conn := connectPooled(t, url, "test")
		if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		var found string
		if err := conn.QueryRow(t.Context(), query).Scan(&found); err != nil {
			t.Fatal(err)
		}
		if found != "" {
			t.Errorf("a session of the pooler still has %s", strings.TrimSpace(found))
		}
	}
}

// connectPooled is a client of the pooler that needs nothing of its sessions.
func connectPooled(t *testing.T, url, name string) *pgx.Conn {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c.RuntimeParams["application_name"] = name
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
