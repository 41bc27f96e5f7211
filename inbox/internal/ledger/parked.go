package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Entry is an event as it is stored when it waits or is given up.
type Entry struct {
	Seq          int64 // its row, when it has one
	ID           ID
	Place        Place
	Offset       int64
	Lane         []byte
	Key          []byte
	Type         string
	Value        []byte
	HeaderNames  []string
	HeaderValues [][]byte
	SentAt       time.Time
	Attempts     int
	Class        string
	Error        string
	Wait         time.Duration // until it is tried again, with ForTime
	Waits        Waits
}

// Waits says for what an entry waits.
type Waits uint8

// For what an entry waits.
const (
	ForTime   Waits = iota // its next attempt
	ForOthers              // those before it in its lane
	ForPerson              // a replay or a discard
)

const entryColumns = `consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
	header_names, header_values, sent_at, attempts, class, error`

func (l *Ledger) entryValues(e Entry) []any {
	names, values := e.HeaderNames, e.HeaderValues
	if names == nil {
		names, values = []string{}, [][]byte{}
	}
	return []any{
		l.consumer, e.ID.Source, e.ID.Event, e.Place.Topic, e.Place.Partition, e.Offset, e.Lane, e.Key, e.Type, e.Value,
		names, values, e.SentAt, e.Attempts, e.Class, e.Error,
	}
}

// dueIn is SQL's next_at for an entry, by the server's clock.
func (e Entry) dueIn() (infinite bool, seconds *float64) {
	switch e.Waits {
	case ForOthers:
		return false, nil
	case ForPerson:
		return true, nil
	}
	s := e.Wait.Seconds()
	return false, &s
}

// Park stores events of one lane, in their order. Those that someone has decided are left as they are. One that is to
// wait for others is due at once if there are none: someone may have discarded them.
// With more than most parked events of the consumer it stores none and returns ErrFull.
func (l *Ledger) Park(ctx context.Context, entries []Entry, most int) error {
	entries, err := l.fitting(ctx, entries...)
	if err != nil {
		return err
	}
	return l.entering(ctx, "park events", Parked, func(tx pgx.Tx) (parked *ID, err error) {
		var batch pgx.Batch
		batch.Queue("SELECT "+l.schema+"inbox_lock($1, $2, $3)", l.name, entries[0].Place.Topic, entries[0].Key)
		for i, e := range entries {
			infinite, seconds := e.dueIn()
			batch.Queue(`WITH won AS (INSERT INTO `+l.schema+`inbox_event (consumer, source, event_id, state)
				VALUES ($1, $2, $3, 1) ON CONFLICT DO NOTHING RETURNING 1)
				INSERT INTO `+l.schema+`inbox_parked (`+entryColumns+`, next_at)
				SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
				CASE WHEN $17 THEN 'infinity' ELSE coalesce(now() + $18::double precision * interval '1 second',
					`+l.schema+`inbox_behind($1, $4, $5, $7)) END FROM won`,
				append(l.entryValues(e), infinite, seconds)...).Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() > 0 {
					parked = &entries[i].ID
				}
				return nil
			})
		}
		if err = tx.SendBatch(ctx, &batch).Close(); err != nil {
			return nil, err
		}
		return parked, l.room(ctx, tx, len(entries), most)
	})
}

// ErrFull reports that as many events are parked as may be.
var ErrFull = errors.New("as many events are parked as MaxParked allows")

// A bound up to exactly is looked at with each event. Counting more costs too much for that: it begins when half is
// reached, by the last count and what this process parked since.
const exactly = 10_000

// room returns ErrFull if more events are parked than may be, with those of this transaction. One transaction at a time
// counts.
func (l *Ledger) room(ctx context.Context, tx pgx.Tx, added, most int) error {
	if about := l.parked.Add(int64(added)); most > exactly && about < int64(most/2) {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 21))",
		fmt.Sprintf("%sinbox_parked %d", l.schema, l.consumer))
	if err != nil {
		return err
	}
	var n int
	err = tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+l.schema+"inbox_parked WHERE consumer = $1 LIMIT $2) p",
		l.consumer, most+1).Scan(&n)
	if err == nil && n > most {
		err = ErrFull
	}
	return err
}

// Lowest takes the lane's first parked events into the caller's transaction, as far as they are due; early: there are
// some, and the first is not. It waits at most LockWait for another one that has them.
func (l *Ledger) Lowest(
	ctx context.Context, tx *Tx, place Place, lane []byte, most int,
) (due []Entry, early bool, err error) {
	var batch pgx.Batch
	known, seen := l.known()
	tx.seen = seen
	batch.Queue(l.same(), known...)
	batch.Queue(fmt.Sprintf("SET LOCAL lock_timeout = %d", LockWait.Milliseconds()))
	batch.Queue(`SELECT seq, `+entryColumns+`, coalesce(next_at > now(), false)
		FROM `+l.schema+`inbox_parked WHERE consumer = $1 AND topic = $2 AND partition = $3 AND lane = $4
		ORDER BY seq LIMIT $5 FOR UPDATE`, l.consumer, place.Topic, place.Partition, lane, most)
	batch.Queue("SET LOCAL lock_timeout TO DEFAULT")
	results := tx.SendBatch(ctx, &batch)
	defer func() {
		if closed := results.Close(); err == nil && closed != nil {
			err = fmt.Errorf("take parked events: %w", setBack(closed))
		}
	}()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return nil, false, fmt.Errorf("take parked events: %w", setBack(err))
		}
	}
	rows, err := results.Query()
	if err != nil {
		return nil, false, fmt.Errorf("take parked events: %w", err)
	}
	var waiting []bool
	due, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		e, waits, err := l.scan(row)
		waiting = append(waiting, waits)
		return e, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("take parked events: %w", setBack(err))
	}
	if n := slices.Index(waiting, true); n >= 0 {
		return due[:n], n == 0, nil
	}
	return due, false, nil
}

func (l *Ledger) scan(row pgx.CollectableRow) (e Entry, early bool, err error) {
	var consumer int16
	err = row.Scan(&e.Seq, &consumer, &e.ID.Source, &e.ID.Event, &e.Place.Topic, &e.Place.Partition, &e.Offset, &e.Lane,
		&e.Key, &e.Type, &e.Value, &e.HeaderNames, &e.HeaderValues, &e.SentAt, &e.Attempts, &e.Class, &e.Error, &early)
	for i, name := range e.HeaderNames {
		e.HeaderNames[i] = original(name)
	}
	e.Type = original(e.Type)
	return e, early, err
}

// Settle says, in the transaction that has their effects, that parked events are done.
func (l *Ledger) Settle(ctx context.Context, tx pgx.Tx, entries []Entry) error {
	seqs, ids := make([]int64, len(entries)), make([]ID, len(entries))
	for i, e := range entries {
		seqs[i], ids[i] = e.Seq, e.ID
	}
	if err := l.turn(ctx, tx, ids, Parked, Done); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM "+l.schema+"inbox_parked WHERE seq = ANY($1)", seqs)
	if err != nil {
		return fmt.Errorf("settle parked events: %w", err)
	}
	return nil
}

// turn changes the state of events, all of them.
func (l *Ledger) turn(ctx context.Context, tx pgx.Tx, ids []ID, from, to State) error {
	sources, events := columns(ids)
	tag, err := tx.Exec(ctx, `UPDATE `+l.schema+`inbox_event e SET state = $4
		FROM unnest($2::smallint[], $3::text[]) AS u (source, id)
		WHERE e.consumer = $1 AND e.source = u.source AND e.event_id = u.id AND e.state = $5`,
		plannedNow, l.consumer, sources, events, to, from)
	if err != nil {
		return fmt.Errorf("change the state of events: %w", err)
	}
	if int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("inbox_event has %d of %d events as parked, and inbox_parked has them all: "+
			"the tables were changed by hand", tag.RowsAffected(), len(ids))
	}
	return nil
}

// Failed notes the failure of a parked event. It does nothing if another one was faster.
func (l *Ledger) Failed(ctx context.Context, e Entry, attemptsBefore int) error {
	infinite, seconds := e.dueIn()
	message, err := l.Fit(ctx, e.Error)
	if err != nil {
		return err
	}
	return l.within(ctx, "note a failed attempt", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE `+l.schema+`inbox_parked SET attempts = $3, class = $4, error = $5,
			next_at = CASE WHEN $6 THEN 'infinity' ELSE now() + $7::double precision * interval '1 second' END
			WHERE seq = $1 AND attempts = $2`,
			e.Seq, attemptsBefore, e.Attempts, e.Class, message, infinite, seconds)
		return err
	})
}

// Bury makes an event a dead letter: one that was parked, when it has a row, or one that no one has decided. If
// someone has, nothing happens.
func (l *Ledger) Bury(ctx context.Context, e Entry) error {
	fitting, err := l.fitting(ctx, e)
	if err != nil {
		return err
	}
	e = fitting[0]
	return l.entering(ctx, "store a dead letter", Dead, func(tx pgx.Tx) (buried *ID, err error) {
		if e.Seq != 0 {
			tag, err := tx.Exec(ctx, "DELETE FROM "+l.schema+"inbox_parked WHERE seq = $1", e.Seq)
			if err != nil || tag.RowsAffected() == 0 {
				return nil, err
			}
			if err := l.turn(ctx, tx, []ID{e.ID}, Parked, Dead); err != nil {
				return nil, err
			}
		} else {
			tag, err := tx.Exec(ctx, `INSERT INTO `+l.schema+`inbox_event (consumer, source, event_id, state)
				VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, l.consumer, e.ID.Source, e.ID.Event, Dead)
			if err != nil || tag.RowsAffected() == 0 {
				return nil, err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO `+l.schema+`inbox_dead (`+entryColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
			ON CONFLICT (consumer, source, event_id) DO UPDATE SET attempts = excluded.attempts, class = excluded.class,
			error = excluded.error, dead_at = now(), replayed_at = NULL, discarded_at = NULL`, l.entryValues(e)...)
		return &e.ID, err
	})
}

// LaneRef names a lane.
type LaneRef struct {
	Place Place
	Lane  []byte
}

// ParkedLanes are the lanes of the partitions that have parked events. Read them after the offsets: what was parked
// below an offset is there then.
func (l *Ledger) ParkedLanes(ctx context.Context, places []Place) ([]LaneRef, error) {
	topics, numbers := placeColumns(places)
	return l.lanes(ctx, "read parked keys", `SELECT DISTINCT p.topic, p.partition, p.lane
		FROM unnest($2::text[], $3::integer[]) AS u (topic, partition)
		JOIN `+l.schema+`inbox_parked p ON p.consumer = $1 AND p.topic = u.topic AND p.partition = u.partition`,
		l.consumer, topics, numbers)
}

// DueLanes are some of the lanes of the partitions whose first event's time has come.
func (l *Ledger) DueLanes(ctx context.Context, places []Place) ([]LaneRef, error) {
	topics, numbers := placeColumns(places)
	return l.lanes(ctx, "look for due events", `SELECT p.topic, p.partition, p.lane FROM `+l.schema+`inbox_parked p
		WHERE p.consumer = $1 AND p.next_at <= now()
		AND (p.topic, p.partition) IN (SELECT * FROM unnest($2::text[], $3::integer[]))
		AND NOT EXISTS (SELECT FROM `+l.schema+`inbox_parked b WHERE b.consumer = $1 AND b.topic = p.topic
			AND b.partition = p.partition AND b.lane = p.lane AND b.seq < p.seq)
		ORDER BY p.next_at LIMIT 1000`, l.consumer, topics, numbers)
}

func placeColumns(places []Place) (topics []string, numbers []int32) {
	topics, numbers = make([]string, len(places)), make([]int32, len(places))
	for i, p := range places {
		topics[i], numbers[i] = p.Topic, p.Partition
	}
	return topics, numbers
}

func (l *Ledger) lanes(ctx context.Context, what, sql string, args ...any) ([]LaneRef, error) {
	rows, err := l.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r LaneRef, err error) {
		err = row.Scan(&r.Place.Topic, &r.Place.Partition, &r.Lane)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return refs, nil
}
