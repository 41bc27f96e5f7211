package store_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a right of a role that is looked for at another schema, table or publication than is meant, so that
// what init and check say would not help. Seen to fail with each condition of what reads the catalog left out.
func TestWhatARoleLacksIsToldOfItsOwnTablesOnly(t *testing.T) {
	pg := harness.Postgres(t)
	execFile(t, pg, "decoys.sql")
	c := usual(t, pg)
	c.Schema, c.Table = "relay", "app.outbox_events"
	supers := open(t, c)
	c = asOther(t, pg, c)
	u, err := url.Parse(c.URL)
	must(t, "read the URL", err)
	role := u.User.Username()
	pg.Exec(t, `ALTER ROLE `+role+` NOSUPERUSER`)
	s := open(t, c)
	lacks := func(what string, want ...string) {
		t.Helper()
		_, statements, err := s.InitLacks(t.Context(), "test")
		must(t, what, err)
		got := strings.NewReplacer("GRANT ", "", ` TO "`+role+`";`, "", `"`, "").Replace(strings.Join(statements, ", "))
		if want := strings.Join(want, ", "); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	database := "CREATE ON DATABASE " + pg.Database
	lacks("nothing is there", database)
	pg.Exec(t, `CREATE SCHEMA relay; CREATE SCHEMA app; GRANT USAGE ON SCHEMA relay, app TO `+role)
	lacks("the schemas are there", "CREATE ON SCHEMA app", "CREATE ON SCHEMA relay", database)
	must(t, "migrate", supers.Migrate(t.Context()))
	lacks("the tables are there", "SELECT ON app.outbox_events", "SELECT ON relay.cdc_relay_schema", database, "postgres")
	pg.Exec(t, `GRANT SELECT ON app.outbox_events, relay.cdc_relay_schema TO `+role)
	lacks("they may be read", database, "postgres")

	o, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	missing := func(of *store.Store) (list []string) {
		t.Helper()
		_, grants, err := of.MissingGrants(t.Context(), o)
		must(t, "look for missing grants", err)
		for _, g := range grants {
			list = append(list, g.String())
		}
		return list
	}
	got := strings.Join(missing(s), "\n")
	if !strings.Contains(got, `INSERT ON "relay"."cdc_relay_journal"`) || strings.Contains(got, "SELECT ON "+
		`"app"."outbox_events"`) || strings.Contains(got, "SCHEMA") {
		t.Errorf("missing grants: got\n%s\nwant those on the relay's tables, and none on schemas or to read the outbox", got)
	}
	c.Schema = "nowhere"
	if got := strings.Join(missing(open(t, c)), "\n"); strings.Contains(got, "nowhere") {
		t.Errorf("missing grants: got\n%s\nwant none of a schema that is not there", got)
	}

	stream := harness.Unique(t, "stream")
	statements, err := supers.RolesSQL(t.Context(), o, store.Roles{Stream: stream, SQL: role})
	must(t, "make roles", err)
	all := strings.Join(statements, "\n")
	if !strings.HasPrefix(all, `CREATE ROLE "`+stream+`" LOGIN REPLICATION`) || strings.Contains(all, `ROLE "`+role) {
		t.Errorf("roles: got\n%s\nwant one made, and the other as it is", all)
	}
}
