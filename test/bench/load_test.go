package bench

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/verify"
)

// loadSQL fills the outbox from inside the server: one row after another, spread over the aggregates.
const loadSQL = `CREATE PROCEDURE bench_load(total bigint, per_transaction bigint, aggregates bigint, filler int) LANGUAGE plpgsql AS $$
DECLARE
	done bigint := 0;
BEGIN
	SET synchronous_commit = off;
	WHILE done < total LOOP
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT '` + aggregateType + `', 'order-' || i * 2654435761 % aggregates, 'OrderPlaced', jsonb_build_object(
			'order', i, 'customer', 'customer-' || i % 5003, 'amount_cents', i * 7919 % 100000, 'currency', 'EUR',
			'note', left(repeat(md5(i::text), filler / 32 + 1), filler))
		FROM generate_series(done + 1, least(done + per_transaction, total)) i;
		COMMIT;
		done := done + per_transaction;
	END LOOP;
END $$`

// payloadFrame is what loadSQL's payload has besides its filler, about.
const payloadFrame = 100

// load commits the events of a drain and leaves the table and the WAL at rest.
func (r *run) load(d drain) {
	r.t.Helper()
	r.exec(loadSQL)
	if _, err := r.conn.Exec(r.t.Context(), "CALL bench_load($1, $2, $3, $4)", d.events, d.perTransaction, r.keys, max(r.payload-payloadFrame, 0)); err != nil {
		r.t.Fatalf("load the outbox: %v", err)
	}
	r.exec("RESET synchronous_commit")
	r.exec("VACUUM (ANALYZE) outbox_events")
}

// judge compares the outbox with what is in the topic and in the journal. It returns the broker's times of the first and the
// last record.
func (r *run) judge() (first, last time.Time) {
	r.t.Helper()
	further := r.judgeJournal
	if r.variant.unjournaled {
		further = nothingFurther
	}
	times := r.judgeTopic(further)
	return times[0], times[len(times)-1]
}

// nothingFurther is for programs that keep no journal.
func nothingFurther(*verify.Judge) {}

// judgeTopic compares the outbox with what is in the topic, and fails at any difference: it is told all that further finds, too. Rows
// of one aggregate are written by one session, so that the order of seq is the order of the commits. It returns the
// broker's times of all records, in their order.
func (r *run) judgeTopic(further func(*verify.Judge)) (times []time.Time) {
	r.t.Helper()
	judge := verify.New(func(_ string, key []byte) int32 { return verify.Murmur2(key, int32(r.partitions)) })
	rows, err := r.conn.Query(r.t.Context(), `SELECT id::text, aggregate_id, payload::text FROM outbox_events ORDER BY seq`)
	if err != nil {
		r.t.Fatalf("read the outbox: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		row := rows.RawValues() // text in text form: no copy but the judge's own
		err := judge.Expect(verify.Committed{ID: string(row[0]), Topic: r.topic, Key: row[1], Value: verify.DigestOf(row[2])})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatalf("read the outbox: %v", err)
	}
	fromTable := 0
	harness.Consume(r.t, r.kafka.Addrs, []string{r.topic}, func(record *kgo.Record) {
		judge.Saw(harness.Seen(record))
		if bytes.HasPrefix(harness.Header(record, "x-outbox-position"), []byte("table/")) {
			fromTable++
		}
		times = append(times, record.Timestamp)
	})
	further(judge)
	if err := judge.Report().Err(0); err != nil {
		r.t.Fatalf("the run was wrong: %v", err)
	}
	if fromTable > 0 {
		r.t.Fatalf("the run was wrong: %d events came from the table, not from the stream", fromTable)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

func (r *run) judgeJournal(judge *verify.Judge) {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), `SELECT event_id::text, topic, partition, "offset" FROM cdc_relay_journal`)
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
