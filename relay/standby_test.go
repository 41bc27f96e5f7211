package relay_test

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// ownServer gives the bed a server of its own, whose settings a test may change.
func (b *bed) ownServer() {
	b.t.Helper()
	b.pg = harness.NewOwnPostgres(b.t, embedded.PostgresConfig{})
	b.c.Postgres.URL = b.pg.URL
	s, err := store.Open(b.t.Context(), relay.StoreConfig(b.c))
	if err == nil {
		defer s.Close()
		err = s.Migrate(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) setStandbys(to string) {
	b.t.Helper()
	b.pg.Exec(b.t, "ALTER SYSTEM SET synchronous_standby_names = '"+to+"'")
	b.pg.Exec(b.t, "SELECT pg_reload_conf()")
	harness.Eventually(b.t, bedPatience, "synchronous_standby_names is "+to, func(context.Context) string {
		return b.pg.Query(b.t, "SELECT CASE WHEN current_setting('synchronous_standby_names') <> '"+to+"' THEN 'not yet' END")
	})
}

// The server takes any stream for a synchronous standby, so that each commit waits for what the relay confirms, and
// what the relay confirms for its own commit. Breaks it catches: a relay that waits for itself without a word, from its
// take-over or its next journal row on, and every commit of the application with it; one that does not go on by itself.
// Seen to fail with the stream taken all the same, at "starting", and without the notice that tells a relay that
// streams, at "active".
func TestStreamThatIsASynchronousStandbyHalts(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.ownServer()
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.setStandbys("*")
	b.waitHalt(r, relay.HaltSetup, "synchronous standby", "synchronous_standby_names", "by itself")
	b.setStandbys("")
	b.waitRole(r, relay.RoleActive)
	mustStop(t, stop)

	b.setStandbys("FIRST 1 (nobody, *)")
	r, stop = b.start()
	b.waitHalt(r, relay.HaltSetup, `"FIRST 1 (nobody, *)"`, "cdc-relay/stream/", "pg_reload_conf")
	b.setStandbys("")
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(6, 5, 3))
	b.waitRecorded(10)
	b.wantNumbers("outbox.event.order", 10)
	mustStop(t, stop)
}
