package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// dispatched is a table as many have it: no aggregate, no time, a mark of its own.
const dispatched = `CREATE TABLE "OutboxMessages" ("Id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	"Type" text NOT NULL, "PayloadJson" jsonb NOT NULL, "DispatchedAt" timestamptz)`

// addDispatched adds rows whose payload is the number and filler; one of a hundred is too large for the topic. Their
// ids follow the commits, since one session adds them all.
const addDispatched = `INSERT INTO "OutboxMessages" ("Type", "PayloadJson"%[3]s) SELECT
	CASE i %% 2 WHEN 0 THEN 'OrderPlaced' ELSE 'OrderShipped' END,
	jsonb_build_object('n', i, 'filler', repeat('x', CASE WHEN i %% 100 = 7 THEN 5000 ELSE 10 END))%[4]s
	FROM generate_series(%[1]d, %[2]d) i`

// shaped is a scenario on a table that is not the relay's own, with settings of docs/migrating.md. A block overrides
// those before it.
func shaped(t *testing.T, table string, blocks ...string) *scenario {
	t.Helper()
	pg, kafka := harness.Postgres(t), harness.Kafka(t)
	s := &scenario{pg: pg, kafka: kafka, settings: harness.NewSettings(t, pg, kafka.Addrs)}
	name := s.settings.Slot()
	delete(s.settings, "outbox.columns.headers")
	settings := harness.Settings{}
	for _, block := range blocks {
		maps.Copy(settings, pageSettings(t, migrating, block))
	}
	settings["message.topic"] = name + "." + settings["message.topic"].(string)
	s.settings = s.settings.With(pairs(settings)...).With("limits.max_unrecorded", 200)
	for _, kind := range []string{"OrderPlaced", "OrderShipped"} {
		kafka.CreateTopic(t, s.shapedTopic(kind), 6, map[string]string{"max.message.bytes": "4000"})
	}
	pg.Exec(t, table)
	s.relay = harness.NewRelay(t, s.settings)
	return s
}

func (s *scenario) shapedTopic(kind string) string {
	return strings.ReplaceAll(s.settings["message.topic"].(string), "{event_type}", kind)
}

// writeAndKill adds the rows, a few in a transaction, and kills the relay twice in the meantime.
func (s *scenario) writeAndKill(t *testing.T, first, last int, columns, values string) {
	t.Helper()
	conn := s.pg.Connect(t)
	wrote := make(chan error, 1)
	at := make(chan int, last)
	go func() { wrote <- addInSteps(t.Context(), conn, at, first, last, columns, values) }()
	for _, until := range []int{first + (last-first)/3, first + 2*(last-first)/3} {
		for n := range at {
			if n >= until {
				break
			}
		}
		s.relay.Kill9()
		s.start(t)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func addInSteps(ctx context.Context, conn *pgx.Conn, at chan<- int, first, last int, columns, values string) error {
	const step = 5
	for n := first; n <= last; n += step {
		if _, err := conn.Exec(ctx, fmt.Sprintf(addDispatched, n, min(n+step-1, last), columns, values)); err != nil {
			return fmt.Errorf("insert rows from %d: %w", n, err)
		}
		at <- n
	}
	return nil
}

// landed reads the topics: how many records each event has, and per topic and key the ids in the order in which they
// first appeared, without those that were replayed.
func (s *scenario) landed(t *testing.T, each func(*kgo.Record)) (seen map[string]int, lanes map[string][]int) {
	t.Helper()
	seen, lanes = map[string]int{}, map[string][]int{}
	harness.Consume(t, s.kafka.Addrs, []string{s.shapedTopic("OrderPlaced"), s.shapedTopic("OrderShipped")},
		func(r *kgo.Record) {
			id := string(harness.Header(r, "id"))
			if seen[id]++; seen[id] == 1 && harness.Header(r, "x-outbox-replay") == nil {
				lane := r.Topic + " " + string(r.Key)
				lanes[lane] = append(lanes[lane], s.number(t, id))
			}
			each(r)
		})
	return seen, lanes
}

// replayAll lets the topics take large events and replays what is dead.
func (s *scenario) replayAll(t *testing.T) {
	t.Helper()
	s.kafka.Configure(t, "max.message.bytes", "100000", s.shapedTopic("OrderPlaced"), s.shapedTopic("OrderShipped"))
	if code, stdout, stderr := s.relay.Run(t, "dlq", "replay", "--all"); code != 0 {
		t.Fatalf("dlq replay: exit code %d, want 0; it said:\n%s%s", code, stdout, stderr)
	}
}

const shapedDLQ = `SELECT count(*) FILTER (WHERE replayed_at IS NULL) || ' of ' || count(*) FROM "OutboxMessages_dlq"`

// A table of Id, Type, PayloadJson, DispatchedAt and the settings of the page. Breaks it catches: an event lost or
// doubled, also by kill -9 and by a replay; one stopped by another one's death; a key, or a header of an aggregate, out
// of nothing; a row marked before it is published, or not marked after. Seen to fail with the names of the aggregate's
// columns left as they are by default (init refuses the table), and with "{id}" as aggregate_id (records have keys).
func TestATableWithoutAnAggregateIsRelayedAsItsPageSays(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := shaped(t, dispatched, "no aggregate")
	s.pg.Exec(t, fmt.Sprintf(addDispatched, 1, 300, "", "")) // older than the slot
	s.relay.Init(t)
	s.start(t)
	const last, dead = 2000, 20
	s.writeAndKill(t, 301, last, "", "")
	s.settled(t)
	harness.Eventually(t, settlePatience, "every row is marked but those of dead letters", s.asking(t, fmt.Sprintf(
		`SELECT coalesce(nullif(count(*), %d) || ' are not marked', '') FROM "OutboxMessages" WHERE "DispatchedAt" IS NULL`,
		dead)))
	if got, want := s.pg.Query(t, shapedDLQ), fmt.Sprintf("%d of %[1]d", dead); got != want {
		t.Errorf("open dead letters: got %s, want %s", got, want)
	}
	if wrong := s.pg.Query(t, `SELECT count(*) FROM "OutboxMessages_dlq" d
		JOIN "OutboxMessages" o ON o."Id" = d.original_id
		WHERE o."DispatchedAt" IS NOT NULL OR d.error_code <> 'MESSAGE_TOO_LARGE' OR d.key IS NOT NULL`); wrong != "0" {
		t.Errorf("dead letters that are marked, have a key or died of something else: got %s, want 0", wrong)
	}
	s.replayAll(t)
	harness.Eventually(t, settlePatience, "replayed rows are marked", s.asking(t,
		`SELECT coalesce(nullif(count(*), 0) || ' are not marked', '') FROM "OutboxMessages" WHERE "DispatchedAt" IS NULL`))
	if got, want := s.pg.Query(t, shapedDLQ), fmt.Sprintf("0 of %d", dead); got != want {
		t.Errorf("open dead letters after the replay: got %s, want %s", got, want)
	}
	seen, _ := s.landed(t, func(r *kgo.Record) {
		kind := harness.Header(r, "event_type")
		if r.Key != nil || harness.Header(r, "aggregate_type") != nil || s.shapedTopic(string(kind)) != r.Topic {
			t.Errorf("record of event %s in %s: got key %q, type %q, aggregate type %q", harness.Header(r, "id"), r.Topic, r.Key,
				kind, harness.Header(r, "aggregate_type"))
		}
	})
	s.judgeShaped(t, seen, last)
	if code, stdout, stderr := s.relay.Run(t, "verify"); code != 0 {
		t.Errorf("verify: exit code %d, want 0; it said:\n%s%s", code, stdout, stderr)
	}
}

// judgeShaped wants each of the rows once.
func (s *scenario) judgeShaped(t *testing.T, seen map[string]int, rows int) {
	t.Helper()
	doubled := 0
	for n := 1; n <= rows; n++ {
		if seen[strconv.Itoa(n)] == 0 {
			t.Errorf("event %d is lost", n)
		}
		doubled += max(0, seen[strconv.Itoa(n)]-1)
	}
	if len(seen) != rows || doubled > 0 {
		t.Errorf("got %d events, %d of them doubled; want %d, each once", len(seen), doubled, rows)
	}
}

// An aggregate of two columns. Breaks it catches: a key of one of them only; order lost within an aggregate, also by
// kill -9; an aggregate stopped by the death in another; a dead letter, and find, without the aggregate. Seen to fail
// with {tenant} alone on the page, and with dead letters written without the aggregate.
func TestAnAggregateComposedOfColumnsKeepsItsOrder(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := shaped(t, strings.Replace(dispatched, `"Type" text`, `tenant text, order_id int, "Type" text`, 1),
		"no aggregate", "composed aggregate")
	s.relay.Init(t)
	s.start(t)
	const last, dead = 2000, 20
	s.writeAndKill(t, 1, last, ", tenant, order_id", ", 'tenant-' || i % 3, i % 7")
	s.settled(t)
	if got, want := s.pg.Query(t, shapedDLQ), fmt.Sprintf("%d of %[1]d", dead); got != want {
		t.Errorf("open dead letters: got %s, want %s", got, want)
	}
	if wrong := s.pg.Query(t, `SELECT count(*) FROM "OutboxMessages_dlq" d
		JOIN "OutboxMessages" o ON o."Id" = d.original_id
		WHERE d.aggregate_id IS DISTINCT FROM o.tenant || ':' || o.order_id
		OR d.key <> convert_to(o.tenant || ':' || o.order_id, 'UTF8')`); wrong != "0" {
		t.Errorf("dead letters without their aggregate: got %s, want 0", wrong)
	}
	s.replayAll(t)
	harness.Eventually(t, settlePatience, "replayed rows are marked", s.asking(t,
		`SELECT coalesce(nullif(count(*), 0) || ' are not marked', '') FROM "OutboxMessages" WHERE "DispatchedAt" IS NULL`))
	seen, lanes := s.landed(t, func(r *kgo.Record) {
		n := s.number(t, string(harness.Header(r, "id")))
		if want := fmt.Sprintf("tenant-%d:%d", n%3, n%7); string(r.Key) != want {
			t.Errorf("event %d: got key %q, want %s", n, r.Key, want)
		}
	})
	s.judgeShaped(t, seen, last)
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		if !slices.IsSorted(lanes[lane]) {
			t.Errorf("%s: events out of order: %v", lane, lanes[lane])
		}
	}
	if len(lanes) != 42 {
		t.Errorf("got %d lanes, want 21 aggregates in two topics", len(lanes))
	}
	if code, stdout, stderr := s.relay.Run(t, "find", "--aggregate", "/tenant-1:4"); code != 0 ||
		strings.Count(stdout, "published") < 90 {
		t.Errorf("find: exit code %d, want 0 and 95 events; it said:\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := s.relay.Run(t, "verify"); code != 0 {
		t.Errorf("verify: exit code %d, want 0; it said:\n%s%s", code, stdout, stderr)
	}
}
