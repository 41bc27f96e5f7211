package store_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var usualColumns = outbox.Columns{
	ID: "id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
	Payload: "payload", CreatedAt: "created_at",
}

// usual is the configuration of a test that cares about something else.
func usual(t testing.TB, pg *harness.PG) store.Config {
	t.Helper()
	return store.Config{URL: pg.URL, Slot: harness.Unique(t, "slot"), Table: "public.outbox_events", Columns: usualColumns}
}

func open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// registered is a store whose tables exist and whose slot has a state; no one has taken it over.
func registered(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	s := open(t, c)
	must(t, "migrate", s.Migrate(t.Context()))
	o, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	_, err = s.Register(t.Context(), "7000000000000000001", 1, o.OID, store.CatchUp)
	must(t, "register", err)
	return s
}

// owner is a registered store that holds a real slot through a real replication connection.
func owner(t testing.TB, pg *harness.PG, c store.Config) *store.Store {
	t.Helper()
	s := registered(t, c)
	takeOver(t, pg, c, s)
	return s
}

// takeOver creates slot and publication if need be, streams from the slot without reading, and takes it over.
func takeOver(t testing.TB, pg *harness.PG, c store.Config, s *store.Store) *pgconn.PgConn {
	t.Helper()
	must(t, "create the publication", s.CreatePublication(t.Context(), "test"))
	pg.Exec(t, fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%[1]s', 'pgoutput')
WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = '%[1]s')`, c.Slot))
	// its last walsender may not have ended yet
	harness.Eventually(t, waitLong, "slot is free", func(context.Context) string {
		return pg.Query(t, `SELECT min('not yet') FROM pg_replication_slots WHERE active AND slot_name = '`+c.Slot+`'`)
	})
	conn := walsender(t, pg, c.Slot)
	_, _, err := s.TakeOver(t.Context(), conn.PID(), 1)
	must(t, "take over", err)
	return conn
}

// walsender streams from the slot under the settings that the replication session pins; no one reads it here.
func walsender(t testing.TB, pg *harness.PG, slot string) *pgconn.PgConn {
	t.Helper()
	u, err := url.Parse(pg.URL)
	must(t, "read the URL", err)
	q := u.Query()
	for name, value := range map[string]string{"replication": "database", "datestyle": "ISO, YMD", "timezone": "UTC",
		"intervalstyle": "postgres", "bytea_output": "hex", "extra_float_digits": "1"} {
		q.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	conn, err := pgconn.Connect(t.Context(), u.String())
	must(t, "connect for replication", err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	must(t, "start replication", pglogrepl.StartReplication(t.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'test'", "messages 'true'"}}))
	return conn
}

// listRows makes the list of rows of a catch-up.
func listRows(t testing.TB, s *store.Store) {
	t.Helper()
	_, err := s.SnapshotCatchUp(t.Context())
	must(t, "list the rows", err)
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// published makes n outcomes with the ids that id gives.
func published(n int, id func(i int) string) []store.Published {
	list := make([]store.Published, n)
	for i := range list {
		list[i] = store.Published{ID: []byte(id(i)), Topic: "outbox.event.Order", Partition: int32(i % 12), Offset: int64(i)}
	}
	return list
}

func uuid(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012x", i) }

// waitLong bounds waits that normally take milliseconds.
const waitLong = 20 * time.Second

// dead is a minimal dead letter with the id uuid(i).
func dead(i int) store.Dead {
	return store.Dead{Event: &outbox.Event{ID: []byte(uuid(i))}, Topic: "t", Partition: -1, Attempts: 1,
		Class: outbox.Permanent, Code: "C", Text: "why"}
}
