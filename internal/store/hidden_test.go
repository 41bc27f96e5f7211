package store_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// asPlain is the configuration with a role of its own that may do anything with the tables of the schema public, and is
// neither their owner nor a superuser.
func asPlain(t *testing.T, pg *harness.PG, c store.Config) (plain store.Config, role string) {
	t.Helper()
	role = harness.Unique(t, "plain")
	pg.Exec(t, `CREATE ROLE `+role+` LOGIN; GRANT ALL ON SCHEMA public TO `+role+`;
GRANT ALL ON ALL TABLES IN SCHEMA public TO `+role)
	t.Cleanup(func() { dropRole(t, pg, role) })
	u, err := url.Parse(c.URL)
	must(t, "read the URL", err)
	u.User = url.User(role)
	c.URL = u.String()
	return c, role
}

// Breaks caught: a role that sees or changes other rows than there are, and no one notices: marks change nothing, a
// catch-up after a lost slot finds nothing to publish. Each of these was taken for a table without rows. Seen to fail
// with each of the conditions on policies and rules left out, and with row_security left to the role.
func TestWhatHidesRowsIsRefusedWithItsRepair(t *testing.T) {
	for _, row := range []struct{ name, hide, what string }{
		{"policy", `ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON outbox_events USING (aggregate_type = current_setting('app.tenant', true))`, "other rows"},
		{"policy that hides nothing", `ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody ON outbox_events USING (true)`, "other rows"},
		{"policies of the owner", `GRANT {role} TO CURRENT_USER; ALTER TABLE outbox_events OWNER TO {role};
ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY; ALTER TABLE outbox_events FORCE ROW LEVEL SECURITY`, "forced"},
		{"a table of ours", `ALTER TABLE cdc_relay_journal ENABLE ROW LEVEL SECURITY`, "cdc_relay_journal"},
		{"dead letters", `ALTER TABLE outbox_events_dlq ENABLE ROW LEVEL SECURITY`, "outbox_events_dlq"},
		{"rule against marks", `CREATE RULE "no marks" AS ON UPDATE TO outbox_events DO INSTEAD NOTHING`, `"no marks"`},
		{"rule of ours", `CREATE RULE quiet AS ON INSERT TO cdc_relay_parked DO INSTEAD NOTHING`, "quiet"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pg := harness.Postgres(t)
			c := usual(t, pg)
			s := owner(t, pg, c)
			insertEvents(t, pg, 0, 3)
			must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
			plainConfig, role := asPlain(t, pg, c)
			plain := open(t, plainConfig)
			_, err := plain.Outbox(t.Context())
			must(t, "read the outbox", err)
			pg.Exec(t, strings.ReplaceAll(row.hide, "{role}", role))
			calls := map[string]func(context.Context) error{
				"count": func(ctx context.Context) error { _, err := plain.CountUnrecorded(ctx, 0); return err },
				"mark":  func(ctx context.Context) error { _, _, err := plain.MirrorStep(ctx, 10); return err },
				"audit": func(ctx context.Context) error {
					return plain.AuditRows(ctx, store.AuditRange{}, nil, func(*store.AuditRow) error { return nil })
				},
			}
			for what, call := range calls { // of a relay that was running before
				if !strings.Contains(row.name, "polic") {
					_ = call(t.Context())
					continue
				}
				// A batch is marked once no older transaction of the server runs, those of other tests included.
				harness.Eventually(t, time.Minute, what+" is refused", func(ctx context.Context) string {
					if call(ctx) == nil {
						return "no error"
					}
					return ""
				})
			}
			_, err = plain.Outbox(t.Context())
			hidden, is := errors.AsType[*store.HiddenError](err)
			if !is || !strings.Contains(hidden.What, row.what) {
				t.Fatalf("got %v, want a refusal with %q", err, row.what)
			}
			statement, _, _ := strings.Cut(hidden.Repair, ";")
			pg.Exec(t, statement)
			if _, err := plain.Outbox(t.Context()); err != nil {
				t.Errorf("after %s: got %v, want the outbox", statement, err)
			}
			for what, call := range calls {
				must(t, what+" after the repair", call(t.Context()))
			}
		})
	}
}

// Breaks caught: a table of an application that is refused though nothing of it hides a row from the relay.
func TestWhatHidesNothingIsTaken(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.AfterPublish = store.Keep
	s := owner(t, pg, c)
	pg.Exec(t, `CREATE TABLE copies (LIKE outbox_events);
CREATE RULE copy AS ON INSERT TO outbox_events DO ALSO INSERT INTO copies VALUES (new.*);
CREATE RULE keep AS ON DELETE TO outbox_events DO INSTEAD NOTHING;
CREATE RULE fixed AS ON UPDATE TO outbox_events DO INSTEAD NOTHING;
ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY`) // of the owner, a superuser
	_, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
}

// Break caught: a write that is left to a default of read only: nothing was
// recorded, and events were published again after each start. Seen to fail with READ WRITE left out: 25006.
func TestEveryCallWorksWhateverTheDatabasesDefaults(t *testing.T) {
	pg := harness.Postgres(t)
	c := asOther(t, pg, usual(t, pg))
	c.URL += "&target_session_attrs=read-write"
	u, err := url.Parse(c.URL)
	must(t, "read the URL", err)
	for _, setting := range []string{"default_transaction_read_only = on", "default_transaction_deferrable = on",
		"default_transaction_isolation = 'serializable'", "timezone = 'Asia/Kolkata'"} {
		pg.Exec(t, "ALTER ROLE "+u.User.Username()+" IN DATABASE "+pg.Database+" SET "+setting)
	}
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 5)
	for _, row := range everyMethod(s, store.Mark) {
		must(t, row.what, row.do(t.Context()))
	}
}
