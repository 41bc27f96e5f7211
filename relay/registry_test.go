package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// schemaServer answers as a registry does, or as one in trouble.
type schemaServer struct {
	mu      sync.Mutex
	status  int               // of each answer; 0: what was asked for
	schemas map[string]string // by subject
	asked   int
}

func (s *schemaServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	schema, has := s.schemas[strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/subjects/"), "/versions/latest")]
	switch {
	case s.status != 0:
		w.WriteHeader(s.status)
	case !has:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error_code": 40401, "message": "Subject not found."}`)
	default:
		fmt.Fprintf(w, `{"id": %d, "version": 1, "schema": %q}`, len(schema), schema)
	}
}

func (s *schemaServer) set(status int, subject, schema string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status = status; subject != "" {
		s.schemas[subject] = schema
	}
}

func (s *schemaServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// bed makes one whose values are Avro by the server's schemas.
func (s *schemaServer) bed(t *testing.T) *bed {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	b := newBed(t)
	b.c.Message.Format, b.c.Registry.URL = config.FormatAvro, server.URL
	b.c.Registry.CacheTTL = config.Duration(100 * time.Millisecond)
	return b
}

// recordOf is a schema with a number of the type.
func recordOf(typ string) string {
	return `{"type": "record", "name": "R", "fields": [{"name": "n", "type": "` + typ + `"}]}`
}

// inAvro is the value {"n": n} by recordOf(typ), n below 64.
func inAvro(typ string, n int) string {
	return string([]byte{0, 0, 0, 0, byte(len(recordOf(typ))), byte(2 * n)})
}

// Breaks it catches: an event that dies, is parked or is skipped because the registry is away, one that is published
// without a schema; a status that says nothing of it, or not that it is over; a connection that the server gives up
// in the meantime; a stop that waits for the registry. Seen to fail with the dispatcher not waiting.
func TestEventsWaitInOrderForARegistryThatIsAway(t *testing.T) {
	t.Parallel()
	s := &schemaServer{status: http.StatusServiceUnavailable, schemas: map[string]string{
		"outbox.event.order-value": recordOf("int")}}
	b := s.bed(t)
	b.c.Postgres.WALSenderTimeout = config.Duration(2 * time.Second)
	b.c.Postgres.StatusInterval = config.Duration(100 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("order", "a", `{"n": 1}`, "")+insert("order", "b", "", "")+insert("order", "a", `{"n": 2}`, ""))
	streaming := "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '" + b.c.Postgres.Slot + "'"
	session := b.pg.Query(t, streaming)
	began := time.Now()
	harness.Eventually(t, bedPatience, "asked for longer than wal_sender_timeout", func(context.Context) string {
		if n, reasons := s.questions(), r.Status().Reasons; n < 5 || time.Since(began) < 5*time.Second ||
			!strings.Contains(strings.Join(reasons, "\n"), "waiting for the schema registry: ") {
			return fmt.Sprintf("asked %d times, reasons %q", n, reasons)
		}
		return ""
	})
	b.waitQuery("nothing is dead, parked or published", `SELECT (SELECT count(*) FROM outbox_events_dlq) +
		(SELECT count(*) FROM cdc_relay_parked) + (SELECT count(*) FROM cdc_relay_journal)`, "0")
	if now := b.pg.Query(t, streaming); now != session {
		t.Errorf("the stream's process: got %s, want %s still", now, session)
	}
	mustStop(t, stop) // and not after the grace

	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	s.set(0, "", "")
	b.waitRecorded(3)
	if st := r.Status(); !st.Ready || st.State != "active" {
		t.Errorf("back again: got ready %t, %s, %q", st.Ready, st.State, st.Reasons)
	}
	s.set(http.StatusInternalServerError, "", "")
	b.pg.Exec(t, insert("order", "a", `{"n": 3}`, ""))
	b.waitRecorded(4) // its schema is known
	mustStop(t, stop)
	got := b.values("outbox.event.order")
	if want := []string{inAvro("int", 1), inAvro("int", 2), inAvro("int", 3)}; !slices.Equal(got["a"], want) ||
		len(got["b"]) != 1 {
		t.Errorf("got %q, want %q of a, and one of b", got, want)
	}
}

// Breaks it catches: a subject without a schema that stops others, spends attempts or makes dead letters; a key out of
// order; events that stay parked when the schema is there. Seen to fail with a parked event without a schema given
// up.
func TestEventsWithoutASchemaWaitParkedWhileOthersFlow(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := &schemaServer{schemas: map[string]string{"outbox.event.order-value": recordOf("int")}}
	b := s.bed(t)
	b.createTopic("outbox.event.refund", 4)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("refund", "a", `{"n": 1}`, "")+insert("refund", "a", `{"n": 2}`, "")+
		insert("refund", "", `{"n": 9}`, "")+insert("order", "a", `{"n": 3}`, "")+insert("order", "b", `{"n": 4}`, ""))
	b.waitRecorded(2)
	b.waitQuery("parked events", "SELECT count(*) || ' ' || max(retry_count) FROM cdc_relay_parked", "3 0")
	said := b.pg.Query(t, "SELECT last_error FROM cdc_relay_parked WHERE error_class = 'transient' LIMIT 1")
	if !strings.Contains(said, "NO_SCHEMA: subject outbox.event.refund-value: the registry has no such subject; "+
		"register it: jq") {
		t.Errorf("last_error: got %q", said)
	}
	b.waitExecuted(b.ask(store.RequestRetry, store.Filter{All: true})) // too early
	b.waitQuery("parked events, still", "SELECT count(*) || ' ' || max(retry_count) FROM cdc_relay_parked", "3 0")
	s.set(0, "outbox.event.refund-value", recordOf("int"))
	harness.Eventually(t, bedPatience, "all is published", func(context.Context) string {
		b.waitExecuted(b.ask(store.RequestRetry, store.Filter{All: true}))
		if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "5" {
			return n + " are"
		}
		return ""
	})
	b.pg.Exec(t, insert("refund", "a", `{"n": 5}`, ""))
	b.waitRecorded(6)
	b.waitDead(0)
	mustStop(t, stop)
	got := b.values("outbox.event.refund")
	if want := []string{inAvro("int", 1), inAvro("int", 2), inAvro("int", 5)}; !slices.Equal(got["a"], want) {
		t.Errorf("got %q, want %q of a", got, want)
	}
}

// Breaks it catches: a misfit that goes out or stops its neighbours, a dead letter without the row's payload, a replay
// by the schema of before. Seen to fail with the misfit's reason doubtful.
func TestAPayloadThatFitsNoSchemaIsADeadLetterUntilOneTakesIt(t *testing.T) {
	t.Parallel()
	s := &schemaServer{schemas: map[string]string{"outbox.event.order-value": recordOf("int")}}
	b := s.bed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("order", "a", `{"n": "x"}`, "")+insert("order", "a", `{"n": 2}`, ""))
	b.waitDead(1)
	b.waitRecorded(1)
	const want = `INVALID_PAYLOAD the payload does not fit version 1 of outbox.event.order-value: at /n ` +
		`expected int, got string {"n": "x"}`
	got := b.pg.Query(t, "SELECT error_code || ' ' || last_error || ' ' || payload FROM outbox_events_dlq")
	if got != want {
		t.Errorf("the dead letter: got\n%s\nwant\n%s", got, want)
	}
	s.set(0, "outbox.event.order-value", recordOf("string"))
	harness.Eventually(t, bedPatience, "the replay is published", func(context.Context) string {
		b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
		if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "2" {
			return n + " are"
		}
		return ""
	})
	mustStop(t, stop)
	if got := b.values("outbox.event.order")["a"]; len(got) != 2 || got[1][5:] != "\x02x" {
		t.Errorf("got %q, want the replay as a string", got)
	}
}

// Break it catches: a stop that waits out its grace for the schema of a row that the stream has missed. Seen to fail
// with the wait for it ended by the grace alone.
func TestAStopDoesNotWaitForTheSchemaOfALateRow(t *testing.T) {
	t.Parallel()
	s := &schemaServer{status: http.StatusServiceUnavailable, schemas: map[string]string{}}
	b := s.bed(t)
	b.c.Reconcile.Interval = config.Duration(50 * time.Millisecond)
	b.c.Drift.Interval = config.Duration(time.Hour)
	b.c.ShutdownGrace = config.Duration(45 * time.Second)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.hide(insert("order", "a", `{"n": 1}`, ""))
	b.waitReason(r, "waiting for the schema registry")
	begun := time.Now()
	mustStop(t, stop)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the stop took %v of a grace of 45 s", took)
	}
}
