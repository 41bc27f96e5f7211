package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A service is known by its own role. The owner of the outbox is no superuser, as there; what lets a role stream is the
// attribute, because plain Postgres has no role that stands for it. Breaks it catches: a statement that the service
// refuses, such as ALTER SYSTEM. Seen to fail with the statements of plain Postgres, and with "28000" of a missing role
// taken for a missing right. init says the same if the right to stream is missing, for itself or for the role
// that --roles makes: seen to fail with its error left as it is, and with either of the two.
func TestCheckNamesTheServicesOwnStatement(t *testing.T) {
	t.Parallel()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	pg.Exec(t, `CREATE ROLE shop_owner LOGIN; GRANT CREATE ON DATABASE test TO shop_owner;
		GRANT USAGE, CREATE ON SCHEMA public TO shop_owner; CREATE ROLE relay_repl LOGIN REPLICATION`)
	as := func(role string) string { return strings.Replace(pg.URL, "postgres@", role+"@", 1) }
	environ := []string{"CDC_RELAY_SINK=stdout", "CDC_RELAY_POSTGRES_SLOT=managed_stdout",
		"CDC_RELAY_POSTGRES_SCHEMA=managed_stdout", "CDC_RELAY_OUTBOX_AFTER_PUBLISH=keep",
		"CDC_RELAY_POSTGRES_URL=" + as("shop_owner")}
	fresh := append(slices.Clone(environ), "CDC_RELAY_POSTGRES_SLOT=none_stdout",
		"CDC_RELAY_POSTGRES_ALLOW_SECOND_SLOT=true")
	streams := append([]string{"CDC_RELAY_POSTGRES_REPLICATION_URL=" + as("relay_repl")}, environ...)
	cdcRelay(t, streams, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, streams, "check").want(t, exitDone,
		[]string{"ok    replication connection: ", "ALTER SYSTEM", "!service"}, nil)
	pg.Exec(t, "CREATE ROLE rds_superuser")
	nobody := append([]string{"CDC_RELAY_POSTGRES_REPLICATION_URL=" + as("nobody")}, environ...)
	cdcRelay(t, nobody, "check").want(t, exitFailed, []string{`CREATE ROLE "nobody"`, "!rds_replication"}, nil)
	pg.Exec(t, "DROP ROLE rds_superuser")
	for role, want := range map[string]string{
		"rds_superuser":     `GRANT rds_replication TO "shop_owner";`,
		"cloudsqlsuperuser": `ALTER USER "shop_owner" WITH REPLICATION;`,
		"azure_pg_admin":    `ALTER ROLE "shop_owner" WITH REPLICATION; as the administrator`,
		"neon_superuser":    `create the role "shop_owner" in the console`,
		"supabase_admin":    `ALTER ROLE "shop_owner" WITH REPLICATION; as postgres`,
		"crunchy_superuser": `ALTER ROLE "shop_owner" WITH REPLICATION; as postgres`,
	} {
		pg.Exec(t, "CREATE ROLE "+role)
		cdcRelay(t, environ, "check").want(t, exitFailed, []string{
			"ok    service: the role " + role, "FAIL  replication connection: ", want, "!ALTER SYSTEM", "if it offers that",
		}, nil)
		cdcRelay(t, fresh, "init").want(t, exitFailed, nil,
			[]string{want, "the role " + role + " says", "!ALTER SYSTEM", "!(RDS: "})
		cdcRelay(t, environ, "init", "--roles", "--role-stream", "relay_stream").want(t, exitFailed, nil,
			[]string{"make the roles", strings.Replace(want, "shop_owner", "relay_stream", 1), "The role " + role + " says",
				"init --roles --dry-run"})
		pg.Exec(t, "DROP ROLE "+role)
	}
	cdcRelay(t, fresh, "init").want(t, exitFailed, nil, []string{`ALTER ROLE "shop_owner" REPLICATION;`, "!says"})
}
