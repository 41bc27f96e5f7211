package queue

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// ParkedLanes lists every lane that has a parked event or is held by a dead letter, those with a key only, some maybe
// twice, and the number of parked events.
func (s *Queue) ParkedLanes(ctx context.Context) (lanes []record.Lane, events int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
			text, of := s.db.Mine(s.db.SQL(o, `SELECT source, topic, key, count(*) FROM {parked} WHERE source = $1
GROUP BY source, topic, key`+s.heldLanes()), source)
			rows, err := tx.Query(ctx, text, of)
			if err != nil {
				return err
			}
			var l record.Lane
			var n int64
			_, err = pgx.ForEachRow(rows, []any{&l.Source, &l.Topic, &l.Key, &n}, func() error {
				events += n
				if l.Key != nil {
					lanes = append(lanes, s.lane(l))
				}
				l.Key = nil
				return nil
			})
			return err
		})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list parked lanes: %w", err)
	}
	return lanes, events, nil
}

// lane is a lane of a row, with a copy of its key. The only outbox of a slot is called by no number.
func (s *Queue) lane(l record.Lane) record.Lane {
	l.Key = bytes.Clone(l.Key)
	if !s.db.Several() {
		l.Source = 0
	}
	return l
}

// WakeHeads makes due the head of each lane that has no time of its own. A head without one is left behind by a crash
// in the middle of a lane's drain. It looks at all that is parked.
func (s *Queue) WakeHeads(ctx context.Context) error {
	_, err := s.changeParked(ctx, "wake the heads of parked lanes", `UPDATE {parked} p SET next_retry_at = now()
FROM (SELECT source, topic, key FROM {parked} WHERE source = $1 AND key IS NOT NULL GROUP BY source, topic, key) l,
 LATERAL (SELECT event_id, next_retry_at FROM {parked} f WHERE f.source = l.source AND f.topic = l.topic
 AND md5(f.key) = md5(l.key) AND f.key = l.key`+queueOrder+` LIMIT 1) h
WHERE p.source = l.source AND p.event_id = h.event_id AND h.next_retry_at IS NULL`+s.free("p"))
	return err
}

// duePortion is how many events MakeDue makes due in one transaction, whatever limits.parked_events is: 200,000 are
// more than a busy server can do within the statement's time, and then none would ever be due.
const duePortion = 5000

// MakeDue makes due, now, the next of what waits for the topic to be well, and says whether there may be more.
func (s *Queue) MakeDue(ctx context.Context, topic string) (more bool, err error) {
	n, err := s.changeParked(ctx, "make parked events of a topic due",
		`UPDATE {parked} SET next_retry_at = now() WHERE ctid = ANY (ARRAY(SELECT ctid FROM {parked}
 WHERE source = $1 AND topic = $2 AND next_retry_at = 'infinity' LIMIT $3)) AND next_retry_at = 'infinity'`,
		topic, duePortion)
	return n > 0, err
}

func (s *Queue) changeParked(ctx context.Context, what, text string, args ...any) (changed int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, db.Limits{Lock: db.Writing.Lock, Statement: db.Writing.Statement, Commit: db.Durable,
			Interpreted: true}, func(tx pgx.Tx) error {
			text, of := s.db.Mine(s.db.SQL(o, text), source)
			tag, err := tx.Exec(ctx, text, append([]any{of}, args...)...)
			changed = tag.RowsAffected()
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return changed, nil
}

// dueSQL finds lanes that are due, and topics with due events that have no lane. An event behind one whose time has not
// come, though its own has, must not take a place under the limit: it would keep others from being seen. One without a
// time may be in front: it came to be the head after the others were parked.
const dueSQL = `(SELECT source, topic, key FROM {parked} p WHERE source = $1 AND next_retry_at <= now()
 AND topic <> ALL ($3::text[]) AND key IS NOT NULL
 AND NOT EXISTS (SELECT FROM {parked} q WHERE q.source = p.source AND q.topic = p.topic AND md5(q.key) = md5(p.key)
 AND q.key = p.key
  AND q.next_retry_at > now()
  AND (q.epoch, q.from_stream, q.position_order, q.position_index) < (p.epoch, p.from_stream, p.position_order,
  p.position_index)){free}
 ORDER BY next_retry_at LIMIT $2)
UNION ALL
(SELECT DISTINCT source, topic, NULL::bytea FROM {parked} WHERE source = $1 AND next_retry_at <= now()
 AND topic <> ALL ($3::text[]) AND key IS NULL)`

// DueLanes lists lanes that are due, the longest due first, and for the events without a key that are due one entry
// per topic; not of the topics given. Next is how long it is until the next event is due; negative when none is.
func (s *Queue) DueLanes(ctx context.Context, limit int,
	without []string) (lanes []record.Lane, next time.Duration, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		if without == nil {
			without = []string{} // not NULL, which compares with nothing
		}
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
			text, of := s.db.Mine(s.db.SQL(o, strings.Replace(dueSQL, "{free}", s.free("p"), 1)), source)
			rows, err := tx.Query(ctx, text, of, limit, without)
			if err != nil {
				return err
			}
			var l record.Lane
			_, err = pgx.ForEachRow(rows, []any{&l.Source, &l.Topic, &l.Key}, func() error {
				lanes = append(lanes, s.lane(l))
				l.Key = nil
				return nil
			})
			if err != nil {
				return err
			}
			var micros int64
			text, of = s.db.Mine(s.db.SQL(o, `SELECT coalesce((
 SELECT greatest(extract(epoch FROM next_retry_at - now()) * 1000000, 0)::bigint
FROM {parked} WHERE source = $1 AND next_retry_at > now() AND next_retry_at < 'infinity' ORDER BY next_retry_at
 LIMIT 1), -1)`), source)
			err = tx.QueryRow(ctx, text, of).Scan(&micros)
			next = time.Duration(micros) * time.Microsecond
			return err
		})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look for due events: %w", err)
	}
	return lanes, next, nil
}

// WaitingTopics are the topics that parked events wait for, in the order of their names, each with what one of these
// was parked for; see WhenWell.
func (s *Queue) WaitingTopics(ctx context.Context) (topics []record.WaitingTopic, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
			text, of := s.db.Mine(s.db.SQL(o, `SELECT topic, coalesce(max(last_error), '') FROM {parked}
WHERE source = $1 AND next_retry_at = 'infinity' GROUP BY topic ORDER BY topic COLLATE "C"`), source)
			rows, err := tx.Query(ctx, text, of)
			if err == nil {
				topics, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.WaitingTopic])
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list topics that are waited for: %w", err)
	}
	return topics, nil
}

// parkedAmongSQL gives the places (from 1) of the events that are parked, each with its lane. Another event with the id
// of a parked one is at another place; where the caller knows no place, the id decides.
const parkedAmongSQL = `SELECT o.place, r.topic, r.key
FROM unnest($2, $3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS o({id}, at, index, era, place),
 LATERAL (SELECT topic, key FROM {parked} r WHERE r.source = $1 AND r.event_id = {oid} AND (o.at = 0
  OR (r.position_order, r.position_index) = (o.at, o.index) AND CASE WHEN r.from_stream THEN o.era = 0
   ELSE r.epoch = o.era END) LIMIT 1) r`

// ParkedAmong finds which of the events are parked, and in which lane: it gives the lanes by the index of the event.
// Only IDs and positions count.
func (s *Queue) ParkedAmong(ctx context.Context, events []record.Sighting) (map[int]record.Lane, error) {
	found := map[int]record.Lane{}
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = db.EachSource(events, source, record.SourceOf, func(source int32, some []record.Sighting,
			places []int) error {
			return s.parkedAmong(ctx, o, source, some, func(i int, l record.Lane) {
				l.Source = some[i].Source
				found[places[i]] = l
			})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look for parked events: %w", err)
	}
	return found, nil
}

// parkedAmong calls found for those of the source's events that are parked.
func (s *Queue) parkedAmong(ctx context.Context, o *db.Table, source int32, events []record.Sighting,
	found func(i int, l record.Lane)) error {
	n := len(events)
	p := new(db.Params).Int4(source)
	if err := p.IDs(o.IDType, n, func(i int) []byte { return events[i].ID }); err != nil {
		return err
	}
	p.Int8s(n, func(i int) int64 { return int64(events[i].Position.Order) })
	p.Int8s(n, func(i int) int64 { return int64(events[i].Position.Index) })
	p.Int8s(n, func(i int) int64 {
		if at := events[i].Position; at.Table {
			return at.Epoch
		}
		return 0
	})
	return s.db.Send(ctx, db.Reading, s.db.SQL(o, parkedAmongSQL), p,
		[]int16{db.TextFormat, db.TextFormat, db.BinaryFormat}, func(v [][]byte) error {
			place, err := strconv.Atoi(string(v[0]))
			if err == nil {
				found(place-1, record.Lane{Topic: string(v[1]), Key: bytes.Clone(v[2])})
			}
			return err
		})
}

// CountParked is the number of parked events.
func (s *Queue) CountParked(ctx context.Context) (n int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		text, of := s.db.Mine(s.db.SQL(o, `SELECT count(*) FROM {parked} WHERE source = $1`), source)
		err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&n) }, text, of)
	}
	if err != nil {
		return 0, fmt.Errorf("count parked events: %w", err)
	}
	return n, nil
}

// OldestParked is when the event was parked that is parked longest, by the server's clock; zero when none is. It reads
// every parked row.
func (s *Queue) OldestParked(ctx context.Context) (time.Time, error) {
	var at *time.Time
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		text, of := s.db.Mine(s.db.SQL(o, `SELECT min(parked_at) FROM {parked} WHERE source = $1`), source)
		err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&at) }, text, of)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look for the oldest parked event: %w", err)
	}
	if at == nil {
		return time.Time{}, nil
	}
	return *at, nil
}
