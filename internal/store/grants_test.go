package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Each documented grant is taken away by itself. Breaks caught: a grant that nothing needs, a lack of one that check
// does not see or takes for another, and an error that does not name the table.
func TestEachGrantIsNeededAndMissedByName(t *testing.T) {
	harness.Full(t)
	tried := map[store.Grant]bool{}
	for _, after := range []string{store.Mark, store.Delete} {
		t.Run(after, func(t *testing.T) { eachGrantIsNeeded(t, after, tried) })
	}
}

// eachGrantIsNeeded tries those that were not tried yet; at night all.
func eachGrantIsNeeded(t *testing.T, after string, tried map[store.Grant]bool) {
	night := harness.Count(t, "grants tried twice") > 0
	dead, retry := failureSets()
	if after == store.Delete {
		dead, retry = "", "" // else UPDATE of their columns is enough to lock a row
	}
	pg, admin, s, role := withGrants(t, after, dead, retry)
	o, err := admin.Outbox(t.Context())
	must(t, "read the outbox", err)
	for _, g := range s.Grants(o) {
		if tried[g] && !night {
			continue
		}
		tried[g] = true
		// each method has what to do only where the one before it has just done it
		pg.Exec(t, `TRUNCATE app.outbox_events, relay.cdc_relay_journal, relay.cdc_relay_journal_batch,
			relay.cdc_relay_parked, relay.cdc_relay_catch_up, relay.cdc_relay_offset, relay.cdc_relay_request,
			relay.cdc_relay_alarms, relay.cdc_relay_edit, relay.outbox_events_dlq;
			INSERT INTO app.outbox_events (id, aggregate_type, event_type) VALUES ('`+uuid(0)+`', 'a', 'e')`)
		pg.Exec(t, "REVOKE "+g.String()+" FROM "+role)
		_, missing, err := s.MissingGrants(t.Context(), o)
		if err != nil || len(missing) != 1 || missing[0] != g {
			t.Errorf("without %s: check misses %v, %v", g, missing, err)
		}
		needs, said := "", ""
		for _, row := range everyMethod(s, after) {
			var refused *pgconn.PgError
			if err := row.do(t.Context()); errors.As(err, &refused) && refused.Code == "42501" {
				needs, said = row.what, err.Error()
				break
			}
		}
		t.Logf("%s: %s: %s", g, needs, said)
		object := g.Schema
		if g.Table != "" {
			object = strings.Trim(g.Table[strings.LastIndex(g.Table, ".")+1:], `"`)
		}
		switch {
		case needs == "":
			t.Errorf("nothing needs %s", g)
		case !strings.Contains(said, object):
			t.Errorf("without %s, %s says %q, want the name %s", g, needs, said, object)
		}
		pg.Exec(t, "GRANT "+g.String()+" TO "+role)
	}
}

// failureSets are outbox.dead_set and retry_set.
func failureSets() (dead, retry string) {
	return "event_type = {error_class}", "aggregate_id = {last_error}"
}

// withGrants is the owner of a slot, as a role with the documented grants only.
func withGrants(t *testing.T, after, dead, retry string) (pg *harness.PG, admin, s *store.Store, role string) {
	t.Helper()
	pg = harness.Postgres(t)
	c := usual(t, pg)
	c.Schema, c.Table, c.AfterPublish = "relay", "app.outbox_events", after
	c.DeadSet, c.RetrySet = dead, retry
	admin = open(t, c)
	must(t, "migrate", admin.Migrate(t.Context()))
	must(t, "create the publication", admin.CreatePublication(t.Context(), "test"))
	role = harness.Unique(t, "relay_rw")
	o, err := admin.Outbox(t.Context())
	must(t, "read the outbox", err)
	pg.Exec(t, "CREATE ROLE "+role+" LOGIN; REVOKE CREATE, USAGE ON SCHEMA public FROM PUBLIC; "+
		strings.Join(admin.GrantsSQL(o, role), "; "))
	t.Cleanup(func() {
		admin.Close()
		conn, err := pgx.Connect(context.Background(), pg.URL) // the test's own context is over
		must(t, "connect to drop the role", err)
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.PgConn().Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role)).ReadAll()
		must(t, "drop the role", err)
	})
	u, err := url.Parse(pg.URL)
	must(t, "read the URL", err)
	u.User = url.User(role)
	c.URL = u.String()
	return pg, admin, owner(t, pg, c), role
}

// A site takes from PUBLIC what the relay and requests write messages into the WAL by. Breaks caught: a request that is
// refused, though the relay would find it; a missing right that check does not see or init --roles does not give.
func TestRequestsNeedNoRightToWriteMessages(t *testing.T) {
	pg, admin, s, role := withGrants(t, store.Mark, "", "")
	pg.Exec(t, `DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' LOOP
			EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM PUBLIC';
		END LOOP; END $$`)
	o, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	id, err := s.AddRequest(t.Context(), store.RequestPause, store.Filter{}, "me", "")
	must(t, "ask for a pause", err)
	if next, err := s.NextRequest(t.Context()); err != nil || next == nil || next.ID != id {
		t.Errorf("next request: got %+v, %v, want number %d", next, err, id)
	}
	if _, err := s.EmitToken(t.Context(), "test", "x"); err == nil {
		t.Error("a token was written, want the right gone")
	}
	_, missing, err := s.MissingGrants(t.Context(), o)
	if err != nil || len(missing) != 1 {
		t.Fatalf("missing grants: got %v, %v, want one", missing, err)
	}
	grant := "GRANT " + missing[0].String() + ` TO "` + role + `"`
	statements, err := admin.RolesSQL(t.Context(), o, store.Roles{Stream: role, SQL: role})
	if err != nil || !slices.Contains(statements, grant) {
		t.Errorf("roles: got %q, %v, want %q among them", statements, err, grant)
	}
	pg.Exec(t, grant)
	if _, missing, err = s.MissingGrants(t.Context(), o); err != nil || len(missing) > 0 {
		t.Errorf("missing grants after %s: got %v, %v, want none", grant, missing, err)
	}
	_, err = s.EmitToken(t.Context(), "test", "x")
	must(t, "write a token", err)
}
