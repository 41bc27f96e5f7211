package test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// outboxStyle is the outbox of an application that keeps in its rows what became of their events.
type outboxStyle struct {
	table    string // as SQL has it
	create   string
	columns  string // of an insert: id, aggregate type and id, event type, payload, created at
	settings []any
	// Conditions on its rows.
	published, failed, again string
}

// outboxStyles are those of two kinds of applications.
var outboxStyles = map[string]outboxStyle{
	"flags": {
		table: "outbox", columns: "id, aggregate_type, aggregate_id, event_type, payload, created_at",
		create: `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type varchar(80) NOT NULL, aggregate_id varchar(80) NOT
			NULL, event_type varchar(80) NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL,
			processed boolean NOT NULL DEFAULT false, processed_at timestamptz, retry_count int NOT NULL DEFAULT 0,
			last_error text)`,
		settings: []any{"outbox.table", "public.outbox", "outbox.columns.headers", "", "outbox.published_when", "processed",
			"outbox.mark_set", "processed = true, processed_at = now(), last_error = NULL",
			"outbox.dead_set", "retry_count = {attempts}, last_error = 'dead: ' || {last_error}",
			"outbox.retry_set", "retry_count = {attempts}, last_error = {last_error}"},
		published: "processed AND processed_at IS NOT NULL AND last_error IS NULL",
		failed:    "NOT processed AND last_error LIKE 'dead: _%' AND retry_count >= 1",
		again:     "NOT processed AND last_error NOT LIKE 'dead:%' AND retry_count >= 1",
	},
	"enum": {
		table: `"OutboxEvent"`, columns: `id, "aggregateType", "aggregateId", type, payload, "createdAt"`,
		create: `CREATE TYPE "OutboxStatus" AS ENUM ('PENDING', 'PROCESSED', 'FAILED');
			CREATE TABLE "OutboxEvent" (id text PRIMARY KEY, "aggregateType" text NOT NULL, "aggregateId" text NOT NULL,
			type text NOT NULL, payload jsonb NOT NULL, "createdAt" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
			status "OutboxStatus" NOT NULL DEFAULT 'PENDING', retries integer NOT NULL DEFAULT 0, "lastError" text,
			"processedAt" timestamp(3))`,
		settings: []any{"outbox.table", "public.OutboxEvent", "outbox.columns.headers", "",
			"outbox.columns.aggregate_type", "aggregateType", "outbox.columns.aggregate_id", "aggregateId",
			"outbox.columns.event_type", "type", "outbox.columns.created_at", "createdAt",
			"outbox.published_when", "status = 'PROCESSED'",
			"outbox.mark_set", `status = 'PROCESSED', "processedAt" = now(), "lastError" = NULL`,
			"outbox.dead_set", `status = 'FAILED', retries = {attempts}, "lastError" = {last_error}`,
			"outbox.retry_set", `status = 'PENDING', retries = {attempts}, "lastError" = {last_error}`},
		published: `status = 'PROCESSED' AND "processedAt" IS NOT NULL AND "lastError" IS NULL`,
		failed:    `status = 'FAILED' AND "lastError" <> '' AND retries >= 1`,
		again:     `status = 'PENDING' AND "lastError" <> '' AND retries >= 1`,
	},
}

// shown is met when so many rows meet the condition.
func (s *scenario) shown(t *testing.T, style outboxStyle, condition, want string) func(context.Context) string {
	t.Helper()
	return s.asking(t, fmt.Sprintf(`SELECT CASE WHEN count(*) %s THEN '' ELSE count(*) || ' rows' END FROM %s WHERE %s`,
		want, style.table, condition))
}

// The topic refuses events that are too large, permanently, and those with an old timestamp, which are tried again. The
// relay is killed time and again. Breaks it catches: a row that shows another fate than its event has: published ones
// that are not marked, refused ones without reason and attempts, a replayed one that still says failed; a fate that a
// killed process forgets to show; a row with a failure that a start takes for published, or publishes twice. Seen to
// fail with the loop that shows failures not started, and with the number of attempts left out.
func TestRowsTellWhatBecameOfTheirEventsUnderKill9(t *testing.T) {
	harness.Full(t)
	for name, style := range outboxStyles {
		t.Run(name, func(t *testing.T) { rowsTell(t, style) })
	}
}

func rowsTell(t *testing.T, style outboxStyle) {
	const aggregates, tooLarge, tooOld = 40, 97, 101
	pg, kafka := harness.Postgres(t), harness.Kafka(t)
	pg.Exec(t, style.create)
	s := newScenario(t, pg, kafka, append(style.settings, "message.timestamp", "created_at", "retry.schedule",
		[]string{"2s", "2s"}, "retry.max_attempts", 3, "dlq.breaker.count", 100_000, "limits.max_unrecorded", 200)...)
	topic := s.settings.Topic("order")
	s.kafka.Configure(t, "max.message.bytes", "4000", topic)
	s.kafka.Configure(t, "message.timestamp.before.max.ms", "3600000", topic)
	s.relay.Init(t)
	s.start(t)
	events, kills := harness.Count(t, "events of rows that tell"), harness.Count(t, "kills of rows that tell")
	refused := events/tooLarge + events/tooOld
	for n := range kills {
		s.write(t, style, n*events/kills+1, (n+1)*events/kills, aggregates, tooLarge, tooOld)
		if n == 0 {
			harness.Eventually(t, settlePatience, "rows show that their events are tried again",
				s.shown(t, style, style.again, "> 0"))
		}
		harness.Eventually(t, settlePatience, "some more rows show that their events are dead",
			s.shown(t, style, style.failed, fmt.Sprintf("> %d", n*refused/kills/2)))
		s.relay.Kill9()
		s.start(t)
	}
	harness.Eventually(t, settlePatience, "every published row says so",
		s.shown(t, style, style.published, fmt.Sprintf("= %d", events-refused)))
	harness.Eventually(t, settlePatience, "every refused row says so",
		s.shown(t, style, style.failed, fmt.Sprintf("= %d", refused)))

	s.kafka.Configure(t, "max.message.bytes", "1000000", topic)
	s.kafka.Configure(t, "message.timestamp.before.max.ms", "9223372036854775807", topic)
	if code, _, stderr := s.relay.Run(t, "dlq", "replay", "--all", "--no-wait"); code != 0 {
		t.Fatalf("dlq replay: exit %d, %s", code, stderr)
	}
	harness.Eventually(t, settlePatience, "some are replayed", s.asking(t,
		"SELECT CASE WHEN count(*) > 0 THEN '' ELSE 'none' END FROM cdc_relay_request WHERE done > 0"))
	s.relay.Kill9()
	s.start(t)
	harness.Eventually(t, settlePatience, "every row says that it is published",
		s.shown(t, style, style.published, fmt.Sprintf("= %d", events)))
	s.judgeNumbers(t, topic, events)
}

// write commits the events with these numbers, in transactions of 20.
func (s *scenario) write(t *testing.T, style outboxStyle, from, to, aggregates, tooLarge, tooOld int) {
	t.Helper()
	for ; from <= to; from += 20 {
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO %s (%s) SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::%s,
			'order', 'k' || i %% %d, 'made', jsonb_build_object('n', i, 'filler', CASE WHEN i %% %d = 0
			THEN repeat('x', 5000) ELSE '' END), now() - CASE WHEN i %% %d = 0 THEN interval '2 days' ELSE '0' END
			FROM generate_series(%d, %d) i`, style.table, style.columns,
			map[bool]string{true: "text", false: "uuid"}[strings.Contains(style.create, "id text")],
			aggregates, tooLarge, tooOld, from, min(from+19, to)))
	}
}

// judgeNumbers wants every event in the topic once, and those of a key in order, but for what was replayed.
func (s *scenario) judgeNumbers(t *testing.T, topic string, events int) {
	t.Helper()
	seen, last := map[string]int{}, map[string]string{}
	doubled, disorder := 0, 0
	harness.Consume(t, s.kafka.Addrs, []string{topic}, func(r *kgo.Record) {
		id := string(harness.Header(r, "id"))
		if seen[id]++; seen[id] > 1 {
			doubled++
			return
		}
		if len(harness.Header(r, "x-outbox-replay")) > 0 || len(harness.Header(r, "x-outbox-retry")) > 0 {
			return
		}
		if key := string(r.Key); last[key] > id {
			disorder++
		} else {
			last[key] = id
		}
	})
	t.Logf("%d events, %d doubled", len(seen), doubled)
	if len(seen) != events || doubled > 0 || disorder > 0 {
		t.Errorf("got %d events, %d doubled, %d out of order; want %d, 0 and 0", len(seen), doubled, disorder, events)
	}
	if open := s.pg.Query(t, `SELECT count(*) FROM cdc_relay_journal`); open != fmt.Sprint(events) {
		t.Errorf("journal: got %s rows, want %d", open, events)
	}
}
