package peers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// event is a committed row, with the time of its commit by Postgres's clock.
type event struct {
	verify.Committed
	at time.Time
}

// arrival is a record, with the time at which the broker appended it, in milliseconds. Both clocks are this machine's.
type arrival struct {
	verify.Record
	at time.Time
}

// verdict is the judge's result of a run.
type verdict struct {
	report                    verify.Report
	lost, doubled, disordered int
	rewritten                 int // records with other bytes than the row has
	other                     int // findings of any other kind: keys, partitions, ids that no one committed
	events                    []event
	first                     map[string]time.Time // by id: when it was there first
}

// judge compares what was committed with what the topics hold: each lane's events in commit order, each partition's
// records by rising offset. Records of ids that are of no account are left out before.
func judge(events []event, arrivals []arrival, partitions map[string]int32) (verdict, error) {
	v := verdict{events: events, first: make(map[string]time.Time)}
	j := verify.New(func(topic string, key []byte) int32 { return verify.Murmur2(key, partitions[topic]) })
	for _, e := range events {
		if err := j.Expect(e.Committed); err != nil {
			return v, err
		}
	}
	for _, a := range arrivals {
		j.Saw(a.Record)
		if _, before := v.first[a.ID]; !before {
			v.first[a.ID] = a.at
		}
	}
	v.report = j.Report()
	for finding, n := range v.report.Counts {
		switch finding {
		case verify.Missing:
			v.lost = n
		case verify.Duplicated:
			v.doubled = n
		case verify.Reordered, verify.BrokenRewind:
			v.disordered += n
		case verify.BytesDiffer:
			v.rewritten = n
		default:
			v.other += n
		}
	}
	return v, nil
}

// recovery is how long after the end of a fault the last of the events that were committed by then was in its topic.
// Those that never came are not in it: they are lost.
func (v verdict) recovery(end time.Time) (longest time.Duration) {
	for _, e := range v.events {
		if at, there := v.first[e.ID]; there && !e.at.After(end) {
			longest = max(longest, at.Sub(end))
		}
	}
	return longest
}

// waits are the times from commit to topic of the events of a topic that were committed in a time, sorted; those that
// never came are counted apart.
func (v verdict) waits(topic string, from, to time.Time) (waits []time.Duration, never int) {
	for _, e := range v.events {
		if e.Topic != topic || e.at.Before(from) || e.at.After(to) {
			continue
		}
		at, there := v.first[e.ID]
		if !there {
			never++
			continue
		}
		waits = append(waits, max(0, at.Sub(e.at)))
	}
	slices.Sort(waits)
	return waits, never
}

// quantile is a value of a sorted list, 0 of an empty one.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// committed reads the truth that the workload wrote, in the commit order of each lane.
func (w *world) committed(ctx context.Context) (events []event, err error) {
	conn, err := pgx.Connect(ctx, w.pg.URL)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT id::text, aggregate_type, aggregate_id, payload::text,
		pg_xact_commit_timestamp(xmin) FROM truth ORDER BY aggregate_type, aggregate_id, seq`)
	if err != nil {
		return nil, fmt.Errorf("read the truth: %w", err)
	}
	var id, aggregateType string
	var key, payload []byte
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &aggregateType, &key, &payload, &at}, func() error {
		events = append(events, event{verify.Committed{ID: id, Topic: w.settings.Topic(aggregateType),
			Key: slices.Clone(key), Value: verify.DigestOf(payload)}, at})
		return nil
	})
	return events, err
}

// arrived turns a record into what the judge takes. Headers are not compared: each peer has its own.
func arrived(r *kgo.Record) arrival {
	seen := harness.Seen(r)
	seen.Headers, seen.Late = verify.Digest{}, false
	return arrival{seen, r.Timestamp}
}

// byOffset sorts records as the judge wants them.
func byOffset(a, b arrival) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}
