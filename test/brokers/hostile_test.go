package brokers_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// hostileTable takes whatever text and JSON can hold.
const hostileTable = `CREATE TABLE outbox_events (id text PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY,
	aggregate_type text, aggregate_id text, event_type text, payload text, headers json, created_at timestamptz,
	published_at timestamptz, good boolean NOT NULL DEFAULT false, made_at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE INDEX ON outbox_events (created_at)`

const insertHostile = `INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers,
	created_at, good) VALUES ($1, $2, $3, $4, $5, $6::text::json, $7::text::timestamptz, $8)`

// odd are texts that some part of the way may not like.
var odd = []string{
	"", " ", "\t", "\n", "\r\n", " lead", "trail ", "a\x01b", "\x1b[31mred", "\x7f", "\u0085", "\u2028", "\ufeff",
	"\u202e", "é", "日本", "🙂", "e\u0301", "null", "{", "}", "{}", "{aggregate_id}", "{{x}}", "%s", "%00", "$$", "$JS.API",
	">", "*", "a.*", "..", "../../x", "/", "//", "\\", "'", `"`, "`", ";--", "a,b", "a:b", "a=b", "#", "?x=1&y",
	"amq.default", "x-death", "__consumer_offsets", "Content-Length", "Nats-Msg-Id", "\\u0000", "<script>", "0", "-1",
	"true",
	strings.Repeat("x", 300), strings.Repeat("é", 200), strings.Repeat("a ", 4000),
}

// headersOfEveryShape are JSON of every shape.
var headersOfEveryShape = []string{
	`null`, `true`, `0`, `"text"`, `[]`, `[[]]`, `{}`, `{"a": null}`, `{"a": true}`, `{"a": 1e400}`, `{"a": {"b": 1}}`,
	`{"a": ["b"]}`, `{"": "empty"}`, `{"a": ""}`, `{"a": "1", "a": "2"}`, `{"id": "mine"}`,
	`{"x-outbox-position": "1/2/3"}`,
	`{"x-outbox-source": "forged"}`, `{"a": "\u0001"}`, `{"a": "\u0000"}`, `{"a": "\ud800"}`,
	`{"a\nb": "c"}`,
	`{"a": "b\r\nInjected: 1"}`, `{" a": "b "}`, `{"Nats-Msg-Id": "1"}`, `{"traceparent": "00-x"}`,
	`{"content-type": "x"}`,
	`{"a": "日本"}`, `{"日本": "a"}`, `{"a": 1e999999999}`,
	`{"a": ` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
	`{"a": "` + strings.Repeat("x", 70_000) + `"}`, `{"` + strings.Repeat("n", 40_000) + `": "x"}`,
}

// payloads are JSON of every size and texts that are none.
func hostilePayload(d *rand.Rand) *string {
	texts := []string{
		`{"n": 1e999999999}`, `{"n": -1e-999999999}`, `{"n": ` + strings.Repeat("9", 5000) + `}`,
		`{"n": 0.` + strings.Repeat("0", 5000) + `1}`, `[` + strings.Repeat("1e1000000,", 2000) + `1]`,
		`{"a": "\u0000"}`, `"\ud800"`, `{`,
		`{"a":1}{"b":2}`, `nul`, `null`, `""`, ` `, "", "\x01\x02", "\u2028", strings.Repeat("[", 20_000),
		strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000), `{"a": 1, "a": 2}`, `<xml/>`,
		`{"filler": "` + strings.Repeat("x", 1<<20) + `"}`, strings.Repeat("é", 1<<19),
	}
	if n := d.IntN(len(texts) + 2); n < len(texts) {
		return &texts[n]
	}
	return nil
}

var hostileTimes = []any{nil, "infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999+00",
	"0001-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2262-04-12 00:00:00+00", "9999-12-31 23:59:59+00",
	"10000-01-01 00:00:00+00", "1582-10-15 12:00:00+15:59"}

// hostileRow is the nth row, odd in one to three of its columns.
func hostileRow(d *rand.Rand, n int) []any {
	pick := func(of []string) string { return of[d.IntN(len(of))] }
	row := []any{fmt.Sprintf("hostile-%d", n), "order", fmt.Sprintf("k%d", n%7), "made", `{"n": 1}`, nil, "2026-01-01",
		false}
	columns := []func(){
		func() { row[0] = pick(odd) + fmt.Sprint(n) + pick(odd[:20]) },
		func() { row[0] = strings.Repeat("i", 1+d.IntN(3000)) + fmt.Sprint(n) },
		func() { row[1] = "bad name " + pick(odd) }, // no topic has a space
		func() { row[1] = strings.Repeat("t", 300) },
		func() { row[2] = pick(odd) },
		func() { row[2] = nil },
		func() { row[3] = pick(odd) },
		func() { row[3] = nil },
		func() { row[4] = hostilePayload(d) },
		func() { row[4] = hostilePayload(d) },
		func() { row[5] = pick(headersOfEveryShape) },
		func() { row[5] = pick(headersOfEveryShape) },
		func() { row[6] = hostileTimes[d.IntN(len(hostileTimes))] },
	}
	columns[n%len(columns)]() // each kind in its turn
	for range d.IntN(3) {
		columns[d.IntN(len(columns))]()
	}
	return row
}

// goodRows is how many good events are weighed without hostile ones, and beside them.
const goodRows = 200

// Rows of every odd kind come beside good ones, to each sink. Breaks it catches: a row that ends the process, holds up
// the stream, is neither published nor a dead letter with its code, or makes others late. Seen to fail with names
// that no topic can have sent to the broker: their events are parked forever.
func TestHostileRowsHurtNothingButThemselves(t *testing.T) {
	harness.Full(t)
	for _, sink := range append([]string{"kafka"}, sinks...) {
		t.Run(sink, func(t *testing.T) {
			scenario := "hostile rows"
			if sink != "kafka" {
				scenario = "hostile rows of other brokers"
			}
			rows := harness.Count(t, scenario)
			if rows == 0 {
				t.Skip("CDC_RELAY_NIGHTLY=1 sends them to this broker, too")
			}
			sendHostile(t, sink, rows)
		})
	}
}

func sendHostile(t *testing.T, sink string, rows int) {
	t.Helper()
	pg := harness.Postgres(t)
	pg.Exec(t, hostileTable)
	var brokers []string
	var begin func(topic string)
	var changes []any
	if sink == "kafka" {
		kafka := harness.Kafka(t)
		brokers, changes = kafka.Addrs, []any{"message.format", "envelope"}
		begin = func(topic string) { kafka.CreateTopic(t, topic, 3, nil) }
	} else {
		s := stage(t, sink)
		begin, changes = s.begin, s.settings(cmp.Or(s.relayAddr[1], s.direct))
	}
	settings := harness.NewSettings(t, pg, brokers).With(changes...).With("dlq.breaker.count", 100_000,
		"outbox.columns.created_at", "created_at")
	if sink != "kafka" {
		delete(settings, "kafka.brokers")
	}
	if sink == "webhook" {
		settings["webhook.lanes"] = 4
	}
	begin(settings.Topic("order"))
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	seed := uint64(20261128)
	d := rand.New(rand.NewPCG(seed, 1))
	good := 0
	insertGood := func() {
		good++
		if _, err := conn.Exec(t.Context(), insertHostile, fmt.Sprintf("good-%d", good), "order", fmt.Sprintf("g%d", good%50),
			"made", `{"n": 1}`, `{"a": "b"}`, "2026-01-01", true); err != nil {
			t.Fatal(err)
		}
	}
	settled := func(of int) {
		t.Helper()
		pgSettled(t, pg, of)
	}
	for range goodRows {
		insertGood()
	}
	settled(goodRows)
	plain := late(t, pg, 0)
	for n := range max(rows, goodRows) {
		insertGood()
		if n >= rows {
			continue
		}
		row := hostileRow(d, n)
		_, err := conn.Exec(t.Context(), insertHostile, append([]any{pgx.QueryExecModeDescribeExec}, row...)...)
		if err != nil {
			t.Fatalf("row %d, %.200q: %v", n, fmt.Sprint(row...), err)
		}
	}
	all := good + rows
	settled(all)
	if beside, most := late(t, pg, goodRows), 2*max(plain, 500*time.Millisecond); beside > most {
		t.Errorf("p99 of good events beside hostile ones: got %v, want at most %v (%v without)", beside, most, plain)
	}
	t.Logf("dead letters: %s", pg.Query(t, `SELECT coalesce(string_agg(error_code || ' ' || n, ', '), 'none') FROM
		(SELECT error_code, count(*) n FROM outbox_events_dlq GROUP BY 1 ORDER BY 1) x`))
	if bad := pg.Query(t, `SELECT count(*) FROM outbox_events_dlq d LEFT JOIN outbox_events o ON o.id = d.original_id
		WHERE o.good OR coalesce(d.error_code, '') IN ('', 'ENCODER_PANIC')`); bad != "0" {
		t.Errorf("dead letters of good events, or without a code: got %s, want 0", bad)
	}
	pg.WaitConfirmed(t, settings.Slot(), time.Minute)
	if code, body := relay.Get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz: got %d %s", code, body)
	}
	relay.Stop(t)
}

// pgSettled waits until so many events are published or dead letters.
func pgSettled(t *testing.T, pg *harness.PG, n int) {
	t.Helper()
	harness.Eventually(t, 3*time.Minute, "all events are settled", func(context.Context) string {
		got := pg.Query(t, `SELECT (SELECT count(*) FROM cdc_relay_journal) + (SELECT count(*) FROM outbox_events_dlq)`)
		if got == fmt.Sprint(n) {
			return ""
		}
		return fmt.Sprintf("%s of %d; one that is not, of all that were made: %s; parked: %s", got, n, pg.Query(t, `SELECT
			coalesce((SELECT left(id, 100) FROM outbox_events o WHERE NOT EXISTS (SELECT FROM cdc_relay_journal j WHERE
			j.event_id = o.id COLLATE "C") AND NOT EXISTS (SELECT FROM outbox_events_dlq d WHERE d.original_id = o.id)
			LIMIT 1), '')`), pg.Query(t, `SELECT coalesce(string_agg(left(topic || ': ' || last_error, 200), '; '), '') FROM
			cdc_relay_parked`))
	})
}

// late is the 99th percentile of the time from insert to journal, of good events but the first.
func late(t *testing.T, pg *harness.PG, without int) time.Duration {
	t.Helper()
	var millis []int
	for _, text := range strings.Fields(pg.Query(t, fmt.Sprintf(`SELECT string_agg(((extract(epoch FROM j.published_at -
		o.made_at) * 1000)::bigint)::text, ' ') FROM outbox_events o JOIN cdc_relay_journal j ON
		j.event_id = o.id COLLATE "C" WHERE o.good AND substr(o.id, 6)::int > %d`, without))) {
		var n int
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		millis = append(millis, n)
	}
	slices.SortFunc(millis, cmp.Compare[int])
	return time.Duration(millis[len(millis)*99/100]) * time.Millisecond
}
