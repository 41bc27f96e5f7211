package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The page that leads to production, in its order, with the roles that it makes. Breaks it catches: a statement or a
// command of it that does not work, or is not run here; a configuration that check passes and run does not. Seen to
// fail with a statement of the page misspelled, and with its init without --roles.
func TestTheWayToProductionIsAsItsPageSays(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	const page = "../docs/production.md"
	sql, names := statements(t, page)
	if want := []string{"settings", "roles", "gone", "tables"}; !slices.Equal(names, want) {
		t.Fatalf("statements of the page: got %q, want %q", names, want)
	}
	s := newScenario(t, harness.NewOwnPostgres(t, embedded.PostgresConfig{}), harness.Kafka(t),
		"postgres.slot", "cdc_relay_app", "postgres.publication", "cdc_relay")
	each := func(name string) { // ALTER SYSTEM is refused in a transaction, which several statements at once are
		t.Helper()
		for statement := range strings.SplitSeq(strings.TrimSpace(sql[name]), ";") {
			s.pg.Exec(t, statement)
		}
	}
	each("settings")
	runCommands(t, s.relay, page, "init")
	each("roles")
	as := func(role string) string { return strings.Replace(s.pg.URL, "postgres@", role+"@", 1) }
	least := s.settings.With("postgres.url", as("relay_rw"), "postgres.replication_url", as("relay_repl"))
	s.relay = harness.NewRelay(t, least)
	runCommands(t, s.relay, page, "check")
	s.start(t)
	s.load(t, harness.Workload{Events: 200}).Wait(t)
	s.settled(t)
	runCommands(t, s.relay, page, "seen")
	runCommands(t, s.relay, page, "pause")
	s.relay.WaitReady(t, time.Minute)
	second := s.second(t)
	s.relay.Stop(t)
	s.load(t, harness.Workload{Events: 200, Seed: 2}).Wait(t)
	s.settled(t)
	s.judge(t, 0)
	second.Stop(t)
	each("gone")
	each("tables")
	if left := s.pg.Query(t, `SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class
		WHERE relkind IN ('r', 'v') AND (relname LIKE 'cdc\_relay%' OR relname LIKE 'outbox\_events\_%')`); left != "" {
		t.Errorf("the page leaves tables or views of the relay: %s", left)
	}
}
