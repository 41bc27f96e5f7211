package test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A database is moved by dump and restore to another server while a relay has died in the middle of its work, so that
// the topics hold more than the journal, and is adopted there under a new slot name. With after_publish: keep the
// journal is all that tells what was published. Breaks caught: a relay that begins on the new server without being
// told; one that publishes again what the journal has, or what the topics have beyond it, or leaves out what neither
// has; a verify that takes the records of the old server for another's. Seen to fail (duplicates) with the former
// server's records not taken for ours in the recovery scan, and (missing) with verify looking at the present one's
// only.
func TestMoveByDumpAndRestoreLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	before := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := startScenario(t, before, harness.Kafka(t), "outbox.after_publish", "keep", "limits.max_unrecorded", 500)
	load := s.load(t, harness.Workload{Aggregates: 100, OnlyKept: true, Events: harness.Count(t, "moved events")})
	harness.Eventually(t, time.Minute, "some are journaled", func(context.Context) string {
		if s.number(t, before.Query(t, "SELECT count(*) FROM cdc_relay_journal")) < 500 {
			return "not yet"
		}
		return ""
	})
	s.relay.Kill9()
	load.Wait(t)

	after := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	dump := filepath.Join(after.Server.Dir(), "dump.sql")
	before.Program(t, "pg_dump", "--no-owner", "--file", dump, before.URL)
	if err := before.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	after.Program(t, "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--output", "/dev/null",
		"--file", dump, after.URL)

	s.pg, s.settings = after, s.settings.With("postgres.url", after.URL, "postgres.slot", harness.Unique(t, "moved"))
	s.relay = harness.NewRelay(t, s.settings)
	s.relay.Start(t)
	harness.Eventually(t, time.Minute, "halted with second_slot", func(ctx context.Context) string {
		if halted, err := s.relay.AskMetric(ctx, "cdc_relay_halted", `code="second_slot"`); err != nil || halted != 1 {
			return "not yet"
		}
		return ""
	})
	s.relay.Stop(t)
	if code, out, errors := s.relay.Run(t, "adopt"); code != 0 || !strings.Contains(out, "adopted") {
		t.Fatalf("adopt: exit code %d, output %s, errors %s", code, out, errors)
	}
	s.start(t)
	s.load(t, harness.Workload{Aggregates: 100, Events: 500}).Wait(t)
	s.settled(t)
	s.judge(t, 0)
	if code, out, errors := s.relay.Run(t, "verify"); code != 0 {
		t.Errorf("verify: exit code %d, output %s, errors %s", code, out, errors)
	}
}
