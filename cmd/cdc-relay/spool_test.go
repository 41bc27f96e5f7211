package main

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: an event that may be spooled told as missed, unknown or simply waiting; a cleanup that prunes what
// spooled events are looked up in; a check that lets the server drop the slot before the spool is used.
func TestCommandsKnowOfSpooledEvents(t *testing.T) {
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_slot_wal_keep_size": "1GB"}})
	s := newServicesOn(t, pg, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	s.insertEvent(t, 1, "order", "a")
	keeps := []string{"max_slot_wal_keep_size: 1GB"}
	cdcRelay(t, s.environ, "check", "--wal-budget=256MiB").want(t, exitDone, append(keeps, "!less than 4 times"), nil)
	cdcRelay(t, s.environ, "check", "--wal-budget=300MiB").want(t, exitDone,
		append(keeps, "less than 4 times wal.budget (300MiB)", "'1200MB'"), nil)
	cdcRelay(t, s.environ, "cleanup", "--dry-run").want(t, exitDone, []string{"!spool"}, nil)
	if f := s.found(t, 1); strings.Contains(f.Says, "spool") {
		t.Errorf("nothing is spooled: got %q", f.Says)
	}

	pg.Exec(t, `INSERT INTO cdc_relay_spool SELECT source, 1, 1, 100, '2026-01-02 03:04:05Z', 7, '' FROM cdc_relay_state`)
	s.becomes(t, 1, store.FoundWaiting, "7 events, the oldest from 2026-01-02T03:04:05Z", "cdc-relay status")
	s.becomes(t, 9, store.FoundNothing, "it may be one of them")
	cdcRelay(t, s.environ, "reconcile", "--dry-run").want(t, exitFailed, []string{"spooled     7 events"}, nil)
	cdcRelay(t, s.environ, "verify", "--wait=0s").want(t, exitFailed,
		[]string{"missing        1", "spooled        7", "verify again when none is left"}, nil)
	cdcRelay(t, s.environ, "cleanup", "--dry-run").want(t, exitDone,
		[]string{"7 events are stored in cdc_relay_spool: journal rows and dead letters are kept"}, nil)
}
