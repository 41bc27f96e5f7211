package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A role has everything that init needs but one thing, on an empty database, and beside an outbox. Breaks it catches:
// an error of Postgres that does not say which privilege it wants; a statement that does not cure it; init and check
// that send each other round. Seen to fail with the error of Postgres left as it is, and with each look of the rights
// left out.
func TestInitNamesTheGrantThatItLacks(t *testing.T) {
	t.Parallel()
	const outbox = `CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text,
		aggregate_id text, event_type text, payload jsonb, headers jsonb, created_at timestamptz, published_at timestamptz)`
	for _, c := range []struct {
		name, set, take string // %[1]s is the role, %[2]s the database, %[3]s who owns it
		want            []string
		first           bool // init has run, as a superuser
	}{
		{name: "look into the schema", take: `REVOKE USAGE ON SCHEMA public FROM %[1]s`,
			want: []string{`GRANT USAGE ON SCHEMA "public" TO "%[1]s";`}},
		{name: "create in the schema", take: `REVOKE CREATE ON SCHEMA public FROM %[1]s`,
			want: []string{`GRANT CREATE ON SCHEMA "public" TO "%[1]s";`}},
		{name: "create in the database", take: `REVOKE CREATE ON DATABASE %[2]s FROM %[1]s`,
			want: []string{`GRANT CREATE ON DATABASE "%[2]s" TO "%[1]s";`}},
		{name: "stream", take: `ALTER ROLE %[1]s NOREPLICATION`, want: []string{`ALTER ROLE "%[1]s" REPLICATION;`}},
		{name: "connect", take: `REVOKE CONNECT ON DATABASE %[2]s FROM %[1]s, PUBLIC`,
			want: []string{`GRANT CONNECT ON DATABASE "%[2]s" TO "%[1]s";`}},
		{name: "read another's outbox", set: outbox + `; ALTER TABLE outbox_events OWNER TO %[3]s`,
			take: `ALTER ROLE %[1]s NOINHERIT; GRANT %[3]s TO %[1]s`,
			want: []string{`GRANT SELECT ON "public"."outbox_events" TO "%[1]s";`}},
		{name: "publish another's outbox", set: outbox + `; ALTER TABLE outbox_events OWNER TO %[3]s`,
			take: `GRANT SELECT ON outbox_events TO %[1]s`, want: []string{`GRANT "%[3]s" TO "%[1]s";`}},
		{name: "read the version", first: true, take: `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA
			public TO %[1]s; REVOKE SELECT ON cdc_relay_schema FROM %[1]s`,
			want: []string{`GRANT SELECT ON "public"."cdc_relay_schema" TO "%[1]s";`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServices(t, orderTopic)
			role, owner := harness.Unique(t, "role"), harness.Unique(t, "owner")
			fill := func(text string) string {
				if strings.Contains(text, "%[") {
					return fmt.Sprintf(text, role, s.pg.Database, owner)
				}
				return text
			}
			if c.first {
				cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
			}
			s.pg.Exec(t, fill(`CREATE ROLE %[1]s LOGIN REPLICATION; CREATE ROLE %[3]s; REVOKE ALL ON SCHEMA public FROM PUBLIC;
				GRANT USAGE, CREATE ON SCHEMA public TO %[1]s, %[3]s; GRANT CREATE, CONNECT ON DATABASE %[2]s TO %[1]s`))
			defer func() {
				s.pg.Exec(t, fill(`REASSIGN OWNED BY %[1]s, %[3]s TO postgres; DROP OWNED BY %[1]s, %[3]s`))
				s.pg.Exec(t, fill(`DROP ROLE %[1]s; DROP ROLE %[3]s`))
			}()
			s.pg.Exec(t, fill(c.set+"; "+c.take))
			as := append(s.environ, "CDC_RELAY_POSTGRES_URL="+strings.Replace(s.pg.URL, "postgres@", role+"@", 1))
			var want []string
			for _, w := range c.want {
				want = append(want, fill(w))
			}
			cdcRelay(t, as, "check").want(t, exitFailed, want, nil)
			cdcRelay(t, as, "init").want(t, exitFailed, nil, append(want, role))
			for _, statement := range want {
				s.pg.Exec(t, statement)
			}
			if c.name == "read another's outbox" {
				// The publication wants the owner. From 16 on a grant keeps what the role had when it was made.
				s.pg.Exec(t, fill(`ALTER ROLE %[1]s INHERIT; REVOKE %[3]s FROM %[1]s; GRANT %[3]s TO %[1]s`))
			}
			cdcRelay(t, as, "init").want(t, exitDone, nil, nil)
		})
	}
}
