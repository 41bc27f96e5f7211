package relay_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break it catches: a relay that tries forever, and says only that its stream has ended, where a person has to
// change the role; one that does not go on when someone has. Seen to fail with refused logins taken for sessions
// that ended.
func TestRoleWithoutReplicationHaltsUntilItHasIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	role := harness.Unique(t, "role")
	b.pg.Exec(t, `CREATE ROLE "`+role+`" LOGIN`)
	defer func() { b.pg.Exec(t, `DROP ROLE "`+role+`"`) }()
	b.c.Postgres.ReplicationURL = strings.Replace(b.pg.URL, "postgres@", role+"@", 1)
	r, stop := b.start()
	b.waitHalt(r, relay.HaltSetup, "cannot log in to Postgres", `ALTER ROLE "`+role+`" REPLICATION;`)
	b.pg.Exec(t, `ALTER ROLE "`+role+`" REPLICATION`)
	b.waitRole(r, relay.RoleActive)
	mustStop(t, stop)
}

// The right to write messages into the WAL was taken from PUBLIC. Break it catches: a relay that tries forever without
// a word of what to do, or that does not go on when it has the right.
func TestRoleThatMayNotWriteMessagesHaltsUntilItMay(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	role := harness.Unique(t, "role") // goes with the server
	b.asRole(role)
	functions := func(what string) {
		b.pg.Exec(t, `DO $$ DECLARE f regprocedure; BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' LOOP
				EXECUTE replace('`+what+`', '%', f::text); END LOOP; END $$`)
	}
	functions("REVOKE EXECUTE ON FUNCTION % FROM PUBLIC")
	r, stop := b.start()
	b.waitHalt(r, relay.HaltSetup, "permission denied for function pg_logical_emit_message", "cdc-relay check")
	functions("GRANT EXECUTE ON FUNCTION % TO " + role)
	b.waitRole(r, relay.RoleActive)
	mustStop(t, stop)
}

// Break it catches: a status that does not say what is tried, how often it failed and when it is tried again. Seen
// to fail with the attempts left out of the reason.
func TestServerThatIsDownIsTriedAndTold(t *testing.T) {
	t.Parallel()
	const nowhere = "127.0.0.1:1"
	b := newBed(t)
	b.c.Postgres.URL = "postgres://a@" + nowhere + "/d"
	wantTriedAndTold(t, b, nowhere, "connection refused")
}

// Break it catches: a secret that is not there yet, taken for a mistake in the table. Seen to fail with the error of
// reading it left as it is.
func TestPasswordThatCannotBeReadIsTriedAndTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Postgres.PasswordCommand = []string{"false"}
	wantTriedAndTold(t, b, "postgres.password_command", "exit status 1")
}

func wantTriedAndTold(t *testing.T, b *bed, words ...string) {
	t.Helper()
	r, _ := b.start()
	harness.Eventually(t, bedPatience, "the status tells of attempts", func(context.Context) string {
		st := r.Status()
		said := strings.Join(st.Reasons, "\n")
		for _, want := range append(words, "attempt 3 failed, the next is") {
			if !strings.Contains(said, want) {
				return "reasons: " + said
			}
		}
		if st.Role != relay.RoleStarting {
			t.Errorf("role: got %s, want starting: nobody has to do anything", st.Role)
		}
		return ""
	})
}
