package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// durableMethods write what the relay relies on once they return, relaxedMethods what may be forgotten and is found
// again. No other method of everyMethod writes.
var (
	durableMethods = []string{
		"Register", "SnapshotCatchUp", "ListsReady",
		"Settle", "Settle of a replay", "Settle of a dead letter", "FinishCatchUp",
		"BeginCatchUp",
		"BeginCatchUpSince", "BeginCatchUpOfLost", "CatchUpOf", "NoteLeftOut", "NoteBaseline", "SetBaseline",
		"AddTopics", "Park", "MakeDue", "WakeHeads", "RetryLater",
		"SettleRetried", "GiveUp",
		"CleanStop", "AddRequest", "StartRequest", "ReplayDead", "SettleRetried of a replay", "DiscardDead", "RetryNow",
		"Republish", "NoteRequest",
		"SetPause", "FinishRequest", "OpenBreaker", "CloseBreaker", "take over", "Migrate", "MakeView", "Apply",
		"CreatePublication",
		"RaiseAlarm", "AckAlarms", "EditDead", "EditAll", "OpenSpool", "Spool",
	}
	relaxedMethods = []string{
		"SaveOffsets", "SaveProgress", "SaveHorizon", "SaveSweep", "MirrorStep", "DeleteStep", "Prune", "PruneDead",
		"NothingToMark", "PruneDropped", "PruneRequests", "ShowDead", "ShowRetried", "DeleteSpooled",
	}
)

// recordLevels has every statement that changes a table note the level of its commit.
func recordLevels(t *testing.T, pg *harness.PG, where string) {
	t.Helper()
	pg.Exec(t, fmt.Sprintf(`DO $$ DECLARE name text; BEGIN
FOR name IN SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE relkind = 'r' AND nspname = '%s' AND relname <> 'levels' LOOP
EXECUTE format('CREATE TRIGGER level AFTER INSERT OR UPDATE OR DELETE ON %%s
 FOR EACH STATEMENT EXECUTE FUNCTION note_level()', name);
END LOOP; END $$`, where))
}

// Breaks caught: a write whose commit does not wait for the disk, where a crash of the server takes back what the
// relay went on from; one that waits where the next step makes up for it, and the path of the events pays. Seen to
// fail with synchronous_commit left out of parks, of topics, of the take-over, of migrations and of saved offsets,
// each by itself.
func TestEveryWriteHasItsCommitLevelWhateverTheDefault(t *testing.T) {
	harness.Full(t)
	harness.Postgres(t) // it needs one: where that is left out, so is this
	// of either, one half of the methods would pass without a level of its own
	for _, byDefault := range []string{"off", "on"} {
		seen := map[string]bool{}
		for _, after := range []string{store.Mark, store.Delete} {
			t.Run(byDefault+", "+after, func(t *testing.T) { everyWriteHasItsLevel(t, byDefault, after, seen) })
		}
		for _, name := range append(durableMethods, relaxedMethods...) {
			if !seen[name] {
				t.Errorf("with the default %s: %s wrote nothing, so that nothing is known of it", byDefault, name)
			}
		}
	}
}

func everyWriteHasItsLevel(t *testing.T, byDefault, after string, seen map[string]bool) {
	pg := harness.Postgres(t)
	pg.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET synchronous_commit = '%s'`, pg.Database, byDefault))
	pg.Exec(t, `CREATE TABLE levels (level text);
CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO public.levels VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE FUNCTION note_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO public.levels VALUES (current_setting('synchronous_commit')); END $$;
CREATE EVENT TRIGGER level ON ddl_command_end EXECUTE FUNCTION note_ddl()`)
	want := func(what string) {
		t.Helper()
		got := pg.Query(t, `SELECT string_agg(DISTINCT level, ' and ') FROM levels`)
		switch {
		case got == "":
		case slices.Contains(durableMethods, what) && got != "on":
			t.Errorf("%s commits with %s, want on", what, got)
		case slices.Contains(relaxedMethods, what) && got != "off":
			t.Errorf("%s commits with %s, want off", what, got)
		case !slices.Contains(durableMethods, what) && !slices.Contains(relaxedMethods, what):
			t.Errorf("%s writes, and is in no list of methods that do", what)
		}
		seen[what] = seen[what] || got != ""
		pg.Exec(t, `TRUNCATE levels`)
	}
	c := usual(t, pg)
	c.AfterPublish, c.DeadSet, c.RetrySet = after, "event_type = {error_class}", "aggregate_id = {last_error}"
	s := open(t, c)
	pg.Exec(t, `TRUNCATE levels`)
	must(t, "migrate", s.Migrate(t.Context()))
	want("Migrate")
	pg.Exec(t, `DROP VIEW outbox_events_status; TRUNCATE levels`)
	must(t, "make the view", s.MakeView(t.Context()))
	want("MakeView")
	must(t, "apply", s.Apply(t.Context(), []string{"GRANT SELECT ON public.outbox_events TO CURRENT_USER"}))
	want("Apply")
	must(t, "create the publication", s.CreatePublication(t.Context(), "test"))
	want("CreatePublication")
	pg.Exec(t, `DROP EVENT TRIGGER level`)
	recordLevels(t, pg, "public")
	o, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	_, err = s.Register(t.Context(), "7", 1, o.OID, store.CatchUp)
	must(t, "register", err)
	want("Register")
	takeOver(t, pg, c, s)
	want("take over")
	insertEvents(t, pg, 0, 5)
	pg.Exec(t, `TRUNCATE levels`)
	for _, row := range everyMethod(s, after) {
		waits := []string{"MirrorStep", "DeleteStep", "PruneDropped", "Prune", "ShowDead", "ShowRetried"}
		if slices.Contains(waits, row.what) {
			noOlderTransaction(t, s)
		}
		must(t, row.what, row.do(t.Context()))
		want(row.what)
	}
}

// Break caught: a token that waits for a synchronous standby that is away, and with it every start. Seen to fail with
// the level of other writes, and with none.
func TestTokenWaitsForNoStandby(t *testing.T) {
	harness.Full(t)
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	s := open(t, usual(t, pg))
	_, err := s.Clock(t.Context()) // the connection is there
	must(t, "ask for the time", err)
	pg.Exec(t, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
	pg.Exec(t, `SELECT pg_reload_conf()`)
	harness.Eventually(t, waitLong, "the server waits for a standby", func(context.Context) string {
		return pg.Query(t, `SELECT CASE WHEN current_setting('synchronous_standby_names') = '' THEN 'not yet' END`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	_, err = s.EmitToken(ctx, "p", "c")
	must(t, "write a token while the standby is away", err)
	pg.Exec(t, `ALTER SYSTEM RESET synchronous_standby_names`)
	pg.Exec(t, `SELECT pg_reload_conf()`)
}
