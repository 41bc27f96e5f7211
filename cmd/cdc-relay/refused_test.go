package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: an expression that a mirror fails on forever, in silence. Seen to fail with Prepare, and with the
// plan of init, that do not ask, and with a lock taken for a refusal.
func TestExpressionsThatPostgresRefusesAreNamedEverywhere(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	wrong := append([]string{"CDC_RELAY_OUTBOX_MARK_SET=foo=1", "CDC_RELAY_OUTBOX_PUBLISHED_WHEN=done",
		"CDC_RELAY_OUTBOX_ORDER_BY=nope"}, s.environ...)
	said := []string{"outbox.mark_set", `column "foo" of relation "outbox_events" does not exist`, "outbox.published_when",
		"outbox.order_by"}
	before := s.pg.Query(t, inventory)
	// it makes the outbox itself
	cdcRelay(t, wrong, "init").want(t, exitFailed, nil, append([]string{"halted (setup)"}, said...))
	if after := s.pg.Query(t, inventory); after != before {
		t.Errorf("after init: got %s, want %s: nothing is made", after, before)
	}
	cdcRelay(t, s.environ, "init", "--no-slot").want(t, exitDone, nil, nil)
	cdcRelay(t, wrong, "init", "--dry-run").want(t, exitFailed, nil, append([]string{"halted (setup)"}, said...))
	cdcRelay(t, wrong, "init", "--no-slot").want(t, exitFailed, nil, append([]string{"halted (setup)"}, said...))
	cdcRelay(t, wrong, "run", "--on-halt=exit").want(t, exitFailed, nil,
		append([]string{`"code":"setup"`, "set outbox.mark_set to"}, said...))
	cdcRelay(t, wrong, "check").want(t, exitFailed, []string{
		`FAIL  outbox.mark_set: foo=1: Postgres refuses it: ERROR: column "foo" of relation "outbox_events" does not exist`,
		`FAIL  outbox.published_when: done: `, `FAIL  outbox.order_by: nope: `, "fix: set outbox.mark_set to",
	}, nil)
	cdcRelay(t, s.environ, "check", "--set", "outbox.mark_set=published_at = now();drop").want(t, exitFailed,
		[]string{"FAIL  outbox.mark_set: "}, nil)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, s.environ, "check").want(t, exitDone, []string{"ok    expressions: "}, nil)

	// A lock of someone's migration is no fault of theirs, and the stream needs none. Seen to fail on 16 with the
	// publication looked up in pg_publication_tables, and, for all tables, with the lock taken for an error.
	s.pg.Exec(t, "CREATE PUBLICATION everything FOR ALL TABLES")
	conn := s.pg.Connect(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE outbox_events"); err != nil {
		t.Fatal(err)
	}
	cdcRelay(t, s.environ, "check").want(t, exitDone, []string{"warn  expressions: the outbox is locked"}, nil)
	cdcRelay(t, s.environ, "check", "--set", "postgres.publication=everything").want(t, exitDone, nil, nil)
	cdcRelay(t, s.environ, "init").want(t, exitDone, []string{"tables       exists"}, nil)
}

// Breaks it catches: a URL that is found wrong only by who connects, after other things were, a password that is
// printed, a command that reads certificates it has no use for. Seen to fail with the driver not asked, with its answer
// not masked, and with status asking it.
func TestURLsThatTheDriverRefusesAreProblemsOfTheConfiguration(t *testing.T) {
	for url, because := range map[string]string{
		"postgres://u:hidden@h:99999/db":                                           "invalid port",
		"postgres://u:hidden@h/db?sslmode=bogus":                                   "sslmode is invalid",
		"postgres://u:hidden@h/db?sslmode=verify-full&sslrootcert=/does/not/exist": "/does/not/exist",
		"postgres://u:hidden@h/db?connect_timeout=soon":                            "connect_timeout",
		"host=h port=abc password=hidden":                                          "invalid port",
		"host=h password='hidden":                                                  "unterminated quoted string",
		"postgres://u:hid`: den@h/db?sslmode=bogus":                                "password",
	} {
		cdcRelay(t, nil, "run", "--postgres-url", url, "--postgres-replication-url", url, "--set", "on_halt=bogus").want(t,
			exitUsage, nil, []string{
				"4 problems", "postgres.url (--postgres-url): found ",
				"postgres.replication_url (--postgres-replication-url): found ", because,
				"allowed: postgres://user@host:port/database", "on_halt (--set)", "kafka.brokers", "xxxxx", "!hid", "!cannot parse",
			})
	}
	cdcRelay(t, nil, "status", "--postgres-url", "postgres://h/db?sslmode=verify-full&sslrootcert=/does/not/exist",
		"--http-listen", "127.0.0.1:1").
		want(t, exitFailed, nil, []string{"!sslrootcert"})
}

// Breaks it catches: schemas that are found wrong only once the relay runs. Seen to fail with no one asked about them.
func TestSchemasAreProblemsOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.json": `{"type": "objekt"}`, "b.json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"run", "check"} {
		cdcRelay(t, nil, command, "--message-schemas", dir, "--set", "on_halt=bogus").want(t, exitUsage, nil, []string{
			"4 problems", `message.schemas (--message-schemas): found "` + dir, "a.json: ", "; b.json: ", "on_halt (--set)",
		})
	}
}

// The first reader of the schema finds a valid one, and replaces it by an invalid one. Breaks it catches: a start
// that reads and compiles the schemas twice, which takes time and may find others. Seen to fail with what the
// configuration compiled not handed to the relay.
func TestSchemasAreReadOnceAtAStart(t *testing.T) {
	dir := t.TempDir()
	schema, wrong := filepath.Join(dir, "made.json"), filepath.Join(t.TempDir(), "wrong")
	if err := errors.Join(os.WriteFile(wrong, []byte("{"), 0o600), syscall.Mkfifo(schema, 0o600)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(schema, os.O_WRONLY, 0) // waits for a reader
		if err == nil {
			_, said := pipe.WriteString("{}")
			err = errors.Join(os.Rename(wrong, schema), said, pipe.Close())
		}
		read <- err
	}()
	r := startRelay(t, nil, "--postgres-url", "postgres://u@127.0.0.1:1/d", "--kafka-brokers", "127.0.0.1:1",
		"--http-listen", "127.0.0.1:0", "--message-schemas", dir)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code: got %d, want 0", code)
	}
}

// Init does not repair a publication that is there, and must not be named as a way to do it. Seen to fail with init
// named in every line, and with a halt's text that adds a semicolon to the statement's own.
func TestPublicationThatInitLeavesAloneIsNotSentToInit(t *testing.T) {
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init", "--no-slot").want(t, exitDone, nil, nil)
	s.pg.Exec(t, "ALTER PUBLICATION cdc_relay SET (publish = 'update')")
	cdcRelay(t, s.environ, "check").want(t, exitFailed,
		[]string{`ALTER PUBLICATION "cdc_relay" SET (publish = 'insert'); (as the owner of the publication)`,
			"!or by cdc-relay init"}, nil)
	cdcRelay(t, s.environ, "init").want(t, exitFailed, nil,
		[]string{`to do: run ALTER PUBLICATION "cdc_relay" SET (publish = 'insert'); see docs/`})
	s.pg.Exec(t, "DROP PUBLICATION cdc_relay")
	cdcRelay(t, s.environ, "check").want(t, exitFailed,
		[]string{"FAIL  publication cdc_relay: no publication", "or by cdc-relay init"}, nil)
}

// A server as it comes out of the box, and then one whose slots are all taken. Breaks it catches: a wait without an end
// for what only a person can change, a halt for what passes, and either without what to do. Seen to fail with neither
// of the server's refusals explained, with init that does not look at wal_level before it makes the tables, and with
// Neon's own way to raise it not said.
func TestServersThatGiveNoSlotSayWhatToDo(t *testing.T) {
	harness.Full(t)
	s := newServices(t, orderTopic)
	pg := harness.NewOwnPostgres(t,
		embedded.PostgresConfig{Settings: map[string]string{"wal_level": "replica", "max_replication_slots": "1"}})
	environ := append(s.environ, "CDC_RELAY_POSTGRES_URL="+pg.URL)
	const remedy = "ALTER SYSTEM SET wal_level = logical; and restart Postgres"
	before := pg.Query(t, inventory)
	cdcRelay(t, environ, "init").want(t, exitFailed, nil, []string{"halted (setup)", "wal_level is replica", remedy})
	if after := pg.Query(t, inventory); after != before {
		t.Errorf("after init: got %s, want %s: nothing is made", after, before)
	}
	pg.Exec(t, "CREATE ROLE neon_superuser")
	cdcRelay(t, environ, "init").want(t, exitFailed, nil, []string{"wal_level is replica",
		"to do: logical replication in the project's settings (the role neon_superuser says Neon)", "!ALTER SYSTEM"})
	pg.Exec(t, "DROP ROLE neon_superuser")
	cdcRelay(t, environ, "init", "--no-slot").want(t, exitDone, nil, nil)
	cdcRelay(t, environ, "run", "--on-halt=exit").want(t, exitFailed, nil,
		[]string{`"code":"setup"`, "wal_level is replica", remedy})

	pg.Exec(t, "ALTER SYSTEM SET wal_level = logical")
	if err := pg.Server.Fast(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pg.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "SELECT pg_create_physical_replication_slot('takes_the_only_one')")
	full := []string{"all replication slots are in use", "ask the owners of unused slots to remove them",
		"max_replication_slots"}
	cdcRelay(t, environ, "init").want(t, exitFailed, nil, append(full, "!halted"))
	r := startRelay(t, append(environ, "CDC_RELAY_ON_HALT=exit"))
	r.awaitStatus(t, "all replication slots are in use")
	pg.Exec(t, "SELECT pg_drop_replication_slot('takes_the_only_one')")
	harness.Eventually(t, time.Minute, "the relay has a slot", func(context.Context) string {
		return strings.ReplaceAll(pg.Query(t, "SELECT count(*) FROM pg_replication_slots WHERE active"), "1", "")
	})
	r.awaitStatus(t, `"role": "active"`)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0", code)
	}
	for _, want := range full {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, r.log)
		}
	}
}
