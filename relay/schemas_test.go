package relay_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// schemasOf makes a directory with a schema for events of type made.
func schemasOf(t *testing.T, schema string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "made.json"), []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Breaks it catches: a payload that breaks its schema and is published, or stops its neighbours; a reason without path
// and rule; a replay that is not held to the schema as it is then. Seen to fail with the schemas not handed to the
// encoder of the stream, and not to that of parked events.
func TestPayloadsThatBreakTheirSchemaBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Message.Schemas = schemasOf(t, `{"required": ["n"], "properties": {"n": {"type": "integer", "maximum": 8}}}`)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("order", "a", `{"n": 1}`, "")+insert("order", "a", `{"n": "secret"}`, "")+
		insert("order", "e", `{"n": 9}`, "")+insert("order", "a", `{"n": 2}`, "")+insert("order", "b", `{}`, "")+
		insert("order", "c", "", "")+strings.ReplaceAll(insert("order", "d", `{}`, ""), "'made'", "'other'"))
	b.waitDead(3)
	b.waitRecorded(4)
	reasons := b.pg.Query(t, `SELECT string_agg(error_code || ' ' || last_error, E'\n' ORDER BY position_order,
 position_index) FROM outbox_events_dlq`)
	const code = "INVALID_PAYLOAD the payload does not fit the schema of made: "
	want := code + "at /n rule type: it is string, and not integer\n" + code + "at /n rule maximum\n" +
		code + `at / rule required: it lacks "n"`
	if reasons != want {
		t.Errorf("reasons: got\n%s\nwant\n%s", reasons, want)
	}
	mustStop(t, stop)

	b.c.Message.Schemas = schemasOf(t, `{"required": ["n"], "properties": {"n": {"type": "integer"}}}`)
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	b.waitRecorded(5)
	b.waitQuery("open dead letters", "SELECT count(*) FROM outbox_events_dlq WHERE replayed_at IS NULL", "2")
	mustStop(t, stop)
	got := b.values("outbox.event.order")
	if a := []string{`{"n": 1}`, `{"n": 2}`}; !slices.Equal(got["a"], a) || len(got["b"]) > 0 ||
		len(got["c"])+len(got["d"])+len(got["e"]) != 3 {
		t.Errorf("topic: got %q, want %q of a, and one of c, d and e each", got, a)
	}
}

// Breaks it catches: a relay that begins with schemas it cannot use. Seen to fail with the error passed over.
func TestSchemasThatCannotBeCompiledAreAProblemAtTheStart(t *testing.T) {
	c := config.Default()
	c.Postgres.URL, c.Kafka.Brokers, c.OnHalt = "postgres://u@h/d", []string{"h:1"}, "bogus"
	c.Message.Schemas = schemasOf(t, `{"type": "objekt"}`)
	_, err := relay.New(c, unused{})
	problems, is := errors.AsType[config.Problems](err)
	if !is || len(problems) != 2 || !strings.Contains(fmt.Sprint(err), "message.schemas: made.json: ") {
		t.Errorf("got %v, want problems of on_halt and message.schemas", err)
	}
}

// Breaks it catches: content that ends the process, at each start again, and one that keeps its neighbours waiting.
// Seen to fail (SIGSEGV in the validator) without the bounds, and without them and with the recover by 20,000
// numbers, which take 84 s.
func TestHostileNumbersDieAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Message.Schemas = schemasOf(t, `{"properties": {"n": {"multipleOf": 2, "minimum": 0}}, "items": {"minimum": 0}}`)
	b.textIDs()
	b.pg.Exec(t, "ALTER TABLE outbox_events ALTER payload TYPE text, ALTER id SET DEFAULT gen_random_uuid()::text")
	good, bad := "", ""
	hostile := []string{`{"n": 1e999999999}`, `{"n": -1e-999999999}`, `[` + strings.Repeat("1e1000000,", 20_000) + `1]`,
		`{"n": ` + strings.Repeat("8", 50_000) + `}`, strings.Repeat(`{"n":`, 9_000) + "2" + strings.Repeat("}", 9_000)}
	for i, payload := range hostile {
		good += insert("order", "a", fmt.Sprintf(`{"n": %d}`, 2*i), "")
		bad += insert("order", "a", payload, "") + insert("order", "a", fmt.Sprintf(`{"n": %d}`, 100+2*i), "")
	}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, good+bad)
	b.waitDead(len(hostile))
	b.waitRecorded(2 * len(hostile))
	codes := b.pg.Query(t, "SELECT string_agg(DISTINCT error_code, ' ') FROM outbox_events_dlq")
	if codes != "INVALID_PAYLOAD" {
		t.Errorf("codes: got %s, want INVALID_PAYLOAD", codes)
	}
	b.waitQuery("dead letters with their whole payload", `SELECT count(*) FROM outbox_events_dlq d
 JOIN outbox_events o ON o.id = d.original_id AND o.payload = d.payload`, fmt.Sprint(len(hostile)))
	mustStop(t, stop)
}

// Breaks it catches: schemas that a program has compiled already, and that are read again, or not used. Seen to fail
// with the directory read all the same.
func TestSchemasOfTheProgramAreNotReadAgain(t *testing.T) {
	c := config.Default()
	c.Postgres.URL, c.Kafka.Brokers = "postgres://u@h/d", []string{"h:1"}
	c.Message.Schemas = filepath.Join(t.TempDir(), "gone")
	r, err := relay.New(c, unused{}, relay.WithSchemas(&schemas.Set{}))
	if err != nil {
		t.Fatalf("got %v, want nothing read", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := relay.New(c, unused{}); err == nil {
		t.Error("without the option: got a relay, want the directory missed")
	}
}
