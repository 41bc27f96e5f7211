package bench

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/bench"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// payloadFrame is the approximate size of a payload without its filler.
const payloadFrame = 100

// load commits the events of a drain and leaves the table and the WAL at rest.
func (r *run) load(d drain) {
	r.t.Helper()
	load := bench.Load{
		Table: "outbox_events", AggregateType: aggregateType, Events: d.events, PerTransaction: d.perTransaction,
		Keys: r.keys, HotKeys: r.hotKeys, Payload: r.payload, Headers: r.headers, Types: r.types,
	}
	r.exec(load.SQL())
	r.exec("VACUUM (ANALYZE) outbox_events")
	if r.afterPublish == "delete" {
		r.truth = "bench_truth"
		r.exec("CREATE UNLOGGED TABLE bench_truth AS TABLE outbox_events") // unlogged: nothing of it is in the stream
	}
}

// judge compares the outbox with what is in the topics and in the journal. It returns the broker's times of all records
// of the drained topics, in their order.
func (r *run) judge() []time.Time {
	r.t.Helper()
	return r.judgeTopic(r.judgeJournal)
}

// nothingFurther is for programs that keep no journal.
func nothingFurther(*verify.Judge) {}

// judgeTopic compares the outbox with what is in the topics, and fails at any difference: it is told all that further
// finds, too. Rows of one aggregate are written by one session, so that the order of seq is the order of the commits.
// It returns the broker's times of all records of the drained topics, in their order.
func (r *run) judgeTopic(further func(*verify.Judge)) (times []time.Time) {
	r.t.Helper()
	judge := verify.New(func(_ string, key []byte) int32 { return verify.Murmur2(key, int32(r.partitions)) })
	topics := r.topics()
	if r.parkedKeys > 0 {
		topics = append(topics, r.refusingTopic())
	}
	rows, err := r.conn.Query(r.t.Context(),
		`SELECT o.id::text, aggregate_id, payload::text, aggregate_type, CASE WHEN p.event_id IS NULL THEN ''
 ELSE 'parked' END
		FROM `+r.truth+` o LEFT JOIN (SELECT event_id FROM cdc_relay_parked) p ON p.event_id = o.id ORDER BY seq`)
	if err != nil {
		r.t.Fatalf("read the outbox: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		row := rows.RawValues() // text in text form: no copy but the judge's own
		c := verify.Committed{ID: string(row[0]), Topic: r.relay.Settings.Topic(string(row[3])), Key: row[1],
			Value: verify.DigestOf(row[2])}
		if string(row[4]) == "parked" {
			c.Fate = verify.Parked
		}
		if err := judge.Expect(c); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatalf("read the outbox: %v", err)
	}
	fromTable, otherHeaders := 0, 0
	harness.Consume(r.t, r.kafka.Addrs, topics, func(record *kgo.Record) {
		judge.Saw(harness.Seen(record))
		if bytes.HasPrefix(harness.Header(record, "x-outbox-position"), []byte("table/")) {
			fromTable++
		}
		if (harness.Header(record, "traceparent") != nil) != r.headers {
			otherHeaders++
		}
		if record.Topic != r.refusingTopic() {
			times = append(times, record.Timestamp)
		}
	})
	further(judge)
	if err := judge.Report().Err(0); err != nil {
		r.t.Fatalf("the run was wrong: %v", err)
	}
	if fromTable > 0 {
		r.t.Fatalf("the run was wrong: %d events came from the table, not from the stream", fromTable)
	}
	if otherHeaders > 0 {
		r.t.Fatalf("the run was wrong: %d records lack their rows' headers, or have others", otherHeaders)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

func (r *run) judgeJournal(judge *verify.Judge) {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), `SELECT event_id::text, topic, partition, "offset" FROM cdc_relay_journal
 WHERE topic <> '`+formerTopic+`'`)
	if err != nil {
		r.t.Fatalf("read the journal: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var place verify.Place
		if err := rows.Scan(&id, &place.Topic, &place.Partition, &place.Offset); err != nil {
			r.t.Fatalf("read the journal: %v", err)
		}
		judge.Journaled(id, place)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatalf("read the journal: %v", err)
	}
}

// Breaks it catches: a scenario of hot keys, of large payloads, or of many topics, that measures something else. Seen
// to fail with the hot keys not given to the procedure, with a filler that Postgres compresses, and with the types
// given to rows in turn, whatever their aggregate is.
func TestLoadIsWhatTheScenarioSays(t *testing.T) {
	const total, keys, hot, payload, types = 1000, 100, 2, 10_000, 3
	pg := harness.Postgres(t)
	r := &run{stage: &stage{options: options{shape: shape{payload: payload, keys: keys, hotKeys: hot,
		types: types, afterPublish: "delete"}}}, t: t, conn: pg.Connect(t)}
	r.exec(`CREATE TABLE outbox_events (seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id text,
 event_type text, payload jsonb)`)
	r.load(drain{events: total, perTransaction: 300})
	var all, transactions, known, often, long, stored int
	err := r.conn.QueryRow(t.Context(),
		`SELECT count(*), count(DISTINCT xmin::text), count(DISTINCT aggregate_id),
 count(*) FILTER (WHERE aggregate_id IN ('order-0', 'order-1')),
		avg(octet_length(payload::text))::int, avg(pg_column_size(payload))::int FROM outbox_events`).Scan(&all,
		&transactions, &known, &often, &long, &stored)
	if err != nil {
		t.Fatal(err)
	}
	if all != total || transactions != 4 || known != keys {
		t.Errorf("got %d events of %d keys in %d transactions, want %d of %d in 4", all, known, transactions, total, keys)
	}
	if often < total/2 || often > total*6/10 {
		t.Errorf("the %d hot keys: got %d events, want half of %d and a few more", hot, often, total)
	}
	if long < payload*95/100 || long > payload*105/100 || stored < payload*9/10 {
		t.Errorf("payloads: got %d bytes, of which %d are stored, want about %d", long, stored, payload)
	}
	var said, mixed int
	r.one("SELECT count(DISTINCT aggregate_type) FROM outbox_events WHERE aggregate_type ~ '^order-[0-2]$'", &said)
	r.one(`SELECT count(*) FROM (SELECT FROM outbox_events GROUP BY aggregate_id
		HAVING count(DISTINCT aggregate_type) > 1) m`, &mixed)
	if said != types || mixed > 0 {
		t.Errorf("got %d types, and %d aggregates of more than one, want %d types", said, mixed, types)
	}
	var kept int
	r.one("SELECT count(*) FROM "+r.truth, &kept)
	if kept != total {
		t.Errorf("the truth beside rows that are to be deleted: got %d events, want %d", kept, total)
	}
}
