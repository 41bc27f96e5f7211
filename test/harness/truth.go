package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
)

// truthSchema holds a workload's record of the outbox, written in the same transactions. A lane's row in truth_lane is
// locked from before its first insert until commit, so the order of seq is the order of the commits.
const truthSchema = `
CREATE TABLE IF NOT EXISTS truth_lane (aggregate_type text, aggregate_id text, seq bigint NOT NULL DEFAULT 0,
 PRIMARY KEY (aggregate_type, aggregate_id));
CREATE TABLE IF NOT EXISTS truth (
	id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text, seq bigint NOT NULL,
	event_type text NOT NULL, payload jsonb, trace text NOT NULL, created_at timestamptz NOT NULL);`

// Audit says what to judge.
type Audit struct {
	PG      *PG
	Brokers []string
	// another one for each type: the truth orders the events of an aggregate only
	Topic   func(aggregateType string) string
	Journal string // the journal table, compared when given
	InOrder bool   // records that say that they are late must be in order all the same
	// why records may say that they are late: rows that the stream did not bring. "" = none may
	Late  string
	Fates string // query of (id::text, 'parked' | 'dead'), when there may be such events
	// what a record's value says, as the truth has it, where it is not the payload's own bytes; nil = it is
	Value func(*kgo.Record) []byte
}

// Judge compares the truth that a workload wrote with what the topics hold now.
func (a Audit) Judge(t testing.TB) verify.Report {
	t.Helper()
	partitions := a.partitions(t)
	judge := verify.New(func(topic string, key []byte) int32 { return verify.Murmur2(key, partitions[topic]) })
	if err := a.expect(t.Context(), judge); err != nil {
		t.Fatalf("read the truth: %v", err)
	}
	topics := make([]string, 0, len(partitions))
	for topic := range partitions {
		topics = append(topics, topic)
	}
	late, first := 0, ""
	Consume(t, a.Brokers, topics, func(r *kgo.Record) {
		seen := Seen(r)
		if a.Value != nil {
			seen.Value = verify.DigestOf(a.Value(r))
		}
		if Header(r, "x-outbox-late") != nil {
			if late++; first == "" {
				first = fmt.Sprintf("%s at %s/%d@%d", seen.ID, r.Topic, r.Partition, r.Offset)
			}
		}
		seen.Late = seen.Late && !a.InOrder
		judge.Saw(seen)
	})
	switch {
	case late > 0 && a.Late == "":
		t.Errorf("%d records say that they are late, the first %s: the stream left these events out, and the table had "+
			"them. Nothing in this scenario may make it miss any", late, first)
	case late > 0:
		t.Logf("%d records are late: %s", late, a.Late)
	}
	if a.Journal != "" {
		if err := a.journal(t.Context(), judge); err != nil {
			t.Fatalf("read the journal: %v", err)
		}
	}
	return judge.Report()
}

// partitions maps the topics of the truth's aggregate types to their numbers of partitions.
func (a Audit) partitions(t testing.TB) map[string]int32 {
	t.Helper()
	conn := a.PG.Connect(t)
	rows, err := conn.Query(t.Context(), `SELECT DISTINCT aggregate_type FROM truth`)
	if err != nil {
		t.Fatalf("list aggregate types: %v", err)
	}
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("list aggregate types: %v", err)
	}
	topics := make([]string, len(types))
	for n, aggregateType := range types {
		topics[n] = a.Topic(aggregateType)
	}
	admin := (&Cluster{Addrs: a.Brokers}).Admin(t)
	listed, err := admin.ListTopics(t.Context(), topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatalf("list topics: %v", err)
	}
	partitions := make(map[string]int32)
	for _, topic := range topics {
		partitions[topic] = int32(len(listed[topic].Partitions))
	}
	return partitions
}

func (a Audit) expect(ctx context.Context, judge *verify.Judge) error {
	conn, err := pgx.Connect(ctx, a.PG.URL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	fates := a.Fates
	if fates == "" {
		fates = "SELECT NULL, NULL WHERE false"
	}
	rows, err := conn.Query(ctx, `
		SELECT t.id::text, aggregate_type, aggregate_id, event_type, payload::text, trace, created_at, coalesce(f.fate, '')
		FROM truth t LEFT JOIN (`+fates+`) f (id, fate) ON f.id = t.id::text
		ORDER BY aggregate_type, aggregate_id, seq`)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	var (
		id, aggregateType, eventType, trace, fate string
		key, payload                              []byte
		created                                   time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &aggregateType, &key, &eventType, &payload, &trace, &created, &fate},
		func() error {
			c := verify.Committed{
				ID: id, Topic: a.Topic(aggregateType), Value: verify.DigestOf(payload),
				Headers: headersDigest(eventType, aggregateType, created.UTC().Format(createdForm), trace),
			}
			if len(key) > 0 {
				c.Key = append([]byte(nil), key...)
			}
			switch fate {
			case "parked":
				c.Fate = verify.Parked
			case "dead":
				c.Fate = verify.Dead
			}
			return judge.Expect(c)
		})
	return err
}

func (a Audit) journal(ctx context.Context, judge *verify.Judge) error {
	conn, err := pgx.Connect(ctx, a.PG.URL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT event_id::text, topic, partition, "offset" FROM `+a.Journal)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	var id string
	var place verify.Place
	_, err = pgx.ForEachRow(rows, []any{&id, &place.Topic, &place.Partition, &place.Offset}, func() error {
		judge.Journaled(id, place)
		return nil
	})
	return err
}

// Truth is the number of events that workloads have committed in the database.
func (p *PG) Truth(t testing.TB) string {
	t.Helper()
	return p.Query(t, "SELECT count(*) FROM truth")
}

// WaitConfirmed waits until the slot's confirmed position has reached what is the end of WAL at the call.
func (p *PG) WaitConfirmed(t testing.TB, slot string, within time.Duration) {
	t.Helper()
	end := p.Query(t, "SELECT pg_current_wal_insert_lsn()")
	Eventually(t, within, "slot "+slot+" confirmed up to "+end, func(ctx context.Context) string {
		got, err := p.TryQuery(ctx,
			fmt.Sprintf(`SELECT confirmed_flush_lsn || CASE WHEN confirmed_flush_lsn >= %s THEN ' ok' ELSE '' END
			FROM pg_replication_slots WHERE slot_name = %s`, quote(end), quote(slot)))
		switch {
		case err != nil:
			return err.Error()
		case len(got) > 3 && got[len(got)-3:] == " ok":
			return ""
		}
		return "confirmed is " + got
	})
}
