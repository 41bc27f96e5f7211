package harness_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const outboxSchema = `
CREATE TABLE outbox_events (id uuid PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text NOT NULL,
	aggregate_id text, event_type text NOT NULL, payload jsonb, headers jsonb, created_at timestamptz NOT NULL,
	published_at timestamptz)`

// decoded lists the ids of the outbox's rows in the order of Postgres's own decoding.
func decoded(t *testing.T, p *harness.PG, slot string) []string {
	t.Helper()
	conn := p.Connect(t)
	rows, err := conn.Query(t.Context(),
		`SELECT data FROM pg_logical_slot_get_changes($1, NULL, NULL, 'skip-empty-xacts', '1')`, slot)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	insert := regexp.MustCompile(`^table public\.outbox_events: INSERT: id\[uuid\]:'([^']*)'`)
	var ids []string
	var line string
	if _, err := pgx.ForEachRow(rows, []any{&line}, func() error {
		if match := insert.FindStringSubmatch(line); match != nil {
			ids = append(ids, match[1])
		}
		return nil
	}); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return ids
}

// relayed returns the records of a faultless relay, made from the truth in the order of the ids.
func relayed(t *testing.T, p *harness.PG, topics map[string]string, ids []string) []*kgo.Record {
	t.Helper()
	type event struct {
		aggregateType, eventType, trace string
		key, payload                    *string
		created                         time.Time
	}
	conn := p.Connect(t)
	rows, err := conn.Query(t.Context(),
		`SELECT id::text, aggregate_type, aggregate_id, event_type, payload::text, trace, created_at FROM truth`)
	if err != nil {
		t.Fatal(err)
	}
	events := map[string]event{}
	var id string
	var e event
	if _, err := pgx.ForEachRow(rows, []any{&id, &e.aggregateType, &e.key, &e.eventType, &e.payload, &e.trace, &e.created},
		func() error {
			events[id] = e
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for _, id := range ids {
		e, known := events[id]
		if !known {
			t.Errorf("Postgres decoded event %s, which is not in the truth", id)
			continue
		}
		r := &kgo.Record{Topic: topics[e.aggregateType], Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id)}, {Key: "event_type", Value: []byte(e.eventType)},
			{Key: "aggregate_type", Value: []byte(e.aggregateType)}, {Key: "traceparent", Value: []byte(e.trace)},
			{Key: "created_at", Value: []byte(e.created.Format(time.RFC3339Nano))},
		}}
		if e.key != nil {
			r.Key = []byte(*e.key)
		}
		if e.payload != nil {
			r.Value = []byte(*e.payload)
		}
		records = append(records, r)
	}
	return records
}

// The order in which Postgres itself decodes the load is the order that the truth claims, and nothing is missing.
// Breaks it catches: a lane not locked until commit, rows of a rolled back savepoint or aborted transaction in the
// truth, deleted rows not in it, keys and payloads that are ASCII only. Seen to fail with lanes read without a lock,
// and with rows of the savepoint kept in the truth.
func TestTruthIsWhatPostgresDecodes(t *testing.T) {
	p, c := harness.Postgres(t), harness.Kafka(t)
	p.Exec(t, outboxSchema)
	p.Exec(t, "SELECT pg_create_logical_replication_slot('"+p.Database+"', 'test_decoding')")
	// The payloads make the topics larger than what one fetch brings.
	load := harness.StartWorkload(t, p,
		harness.Workload{Types: []string{"order", "user"}, Aggregates: 5, Writers: 6, Events: 2000, Keyless: 50,
			Tombstones: 20, PayloadBytes: 3000})
	load.Wait(t)
	ids := decoded(t, p, p.Database)
	if got, want := strconv.Itoa(len(ids)), p.Truth(t); got != want {
		t.Errorf("events decoded: got %s, want the truth's %s", got, want)
	}
	if got, want := strconv.Itoa(load.Committed()), p.Truth(t); got != want {
		t.Errorf("events that the writers counted: got %s, want the truth's %s", got, want)
	}
	if deleted := p.Query(t, "SELECT count(*) FROM truth WHERE id NOT IN (SELECT id FROM outbox_events)"); deleted == "0" {
		t.Error("no event of a row that its own transaction deleted: the load is not what it should be")
	}
	for _, column := range []string{"aggregate_id", "payload::text"} {
		if beyond := p.Query(t, `SELECT count(*) FROM truth WHERE octet_length(`+column+`) > length(`+column+
			`)`); beyond == "0" {
			t.Errorf("%s is ASCII in each event: the load is not what it should be", column)
		}
	}

	topics := map[string]string{"order": c.Topic(t, "orders", 3, nil), "user": c.Topic(t, "users", 1, nil)}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), relayed(t, p, topics, ids)...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	followed := make(chan struct{})
	count := 0
	harness.Follow(t, c.Addrs, []string{topics["order"], topics["user"]}, func(*kgo.Record) {
		if count++; count == len(ids) {
			close(followed)
		}
	})
	audit := harness.Audit{PG: p, Brokers: c.Addrs, Topic: func(aggregateType string) string {
		return topics[aggregateType]
	}}
	report := audit.Judge(t)
	if err := report.Err(0); err != nil {
		t.Error(err)
	}
	select {
	case <-followed:
	case <-time.After(30 * time.Second):
		t.Errorf("the follower did not see all of %d records within 30 s", len(ids))
	}

	first := relayed(t, p, topics, ids[:1])
	first[0].Value = []byte("other")
	if err := client.ProduceSync(t.Context(), first...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	report = audit.Judge(t)
	if report.Counts[verify.Duplicated] != 1 || report.Counts[verify.BytesDiffer] != 1 {
		t.Errorf("after a duplicate with other bytes: got %v, want 1 duplicated and 1 bytes differ", report)
	}
}

// Breaks it catches: writers that give up at a crash, a truth that differs from the table after one, locks that a
// prepared transaction keeps. Seen to fail with writers that end at any error.
func TestTruthSurvivesCrashesOfPostgres(t *testing.T) {
	harness.Full(t)
	p := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	p.Exec(t, outboxSchema)
	load := harness.StartWorkload(t, p, harness.Workload{Aggregates: 3, Writers: 4})
	for range 3 {
		load.WaitCommitted(t, 200, 30*time.Second)
		if err := p.Server.Kill9(); err != nil {
			t.Fatal(err)
		}
		if err := p.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	load.WaitCommitted(t, 200, 30*time.Second)
	load.Stop(t)
	for what, sql := range map[string]string{
		"rows without a truth":       "SELECT count(*) FROM outbox_events WHERE id NOT IN (SELECT id FROM truth)",
		"prepared transactions left": "SELECT count(*) FROM pg_prepared_xacts",
		"numbers given twice":        "SELECT count(*) - count(DISTINCT (aggregate_id, seq)) FROM truth",
		"numbers left out": "SELECT coalesce(sum(last - n), 0) FROM (SELECT max(seq) AS last, count(*) AS n FROM " +
			"truth GROUP BY aggregate_id) s",
	} {
		if got := p.Query(t, sql); got != "0" {
			t.Errorf("%s: got %s, want 0", what, got)
		}
	}
}

// Break it catches: a rate that is ignored, or counted per writer. Seen to fail with the rate counted per writer.
func TestWorkloadKeepsItsRate(t *testing.T) {
	harness.Full(t)
	p := harness.Postgres(t)
	p.Exec(t, outboxSchema)
	began := time.Now()
	load := harness.StartWorkload(t, p, harness.Workload{Writers: 3, Events: 300, Rate: 300})
	load.Wait(t)
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("300 events at 300/s: took %v, want about 1 s", took)
	}
	if got := load.Committed(); got < 300 || got > 500 {
		t.Errorf("committed: got %d, want 300 or a few more", got)
	}
}
