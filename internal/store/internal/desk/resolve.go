package desk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// openDead is a dead letter that nothing has become of: neither replayed, nor discarded, nor on its way to be
// published.
const openDead = `d.source = $1 AND d.replayed_at IS NULL AND d.discarded_at IS NULL
 AND NOT EXISTS (SELECT 1 FROM {parked} q WHERE q.source = $1 AND q.event_id = d.original_id)`

// replayable leaves out what could be published and never recorded.
var replayable = fmt.Sprintf(" AND octet_length(d.original_id) <= %d", outbox.MaxID)

// waitingParked is a parked event with a time of its own that has not come. One that waits for its topic ('infinity')
// is looked for all the time, and one without a time moves with the one in front of it.
const waitingParked = `p.source = $1 AND p.next_retry_at > now() AND p.next_retry_at < 'infinity'`

// ofRequest makes the conditions of what a request concerns, with $1 the source. What died, or failed once more, after
// it was made, or after what it says itself, is not meant: so a request ends, and is the same when it is begun again.
func (s *Desk) ofRequest(c *conditions, o *db.Table, source int32, r *record.Request) error {
	until := r.RequestedAt
	if u := r.Filter.Until; u != nil && u.Before(until) {
		until = *u
	}
	c.args = append(c.args, source, until)
	if r.Kind != record.RequestRetry {
		c.text.WriteString(openDead + " AND d.dead_at <= $2::timestamptz")
		if r.Kind == record.RequestReplay {
			// One that it took, and that stays behind another, is open again.
			c.args = append(c.args, r.ID)
			c.text.WriteString(" AND d.replay IS DISTINCT FROM $3::bigint")
			if o.TextIDs() {
				c.text.WriteString(replayable)
			}
			c.text.WriteString(s.readable(o))
		}
		return c.matching(r.Filter, deadPlace, o, "$2::timestamptz")
	}
	c.text.WriteString(waitingParked + " AND coalesce(p.last_error_at, p.parked_at) <= $2::timestamptz")
	var named conditions
	named.args = c.args
	if err := named.matching(r.Filter, place{"q", "event_id", "parked_at"}, o, "$2::timestamptz"); err != nil {
		return err
	}
	if named.text.Len() > 0 { // the head of the key is tried, whichever event of it was named
		c.args = named.args
		c.text.WriteString(` AND EXISTS (SELECT 1 FROM {parked} q WHERE q.source = $1` + named.text.String() + `
 AND (q.event_id = p.event_id OR q.topic = p.topic AND md5(q.key) = md5(p.key) AND q.key = p.key))`)
	}
	return nil
}

// concerned counts what the request will change.
func (s *Desk) concerned(ctx context.Context, tx pgx.Tx, o *db.Table, source int32,
	r *record.Request) (n int64, err error) {
	var table string
	switch r.Kind {
	case record.RequestReplay, record.RequestDiscard:
		table = "{dlq} d"
	case record.RequestRetry:
		table = "{parked} p"
	case record.RequestReconcile: // known when it is done
		return 0, nil
	case record.RequestRepublish:
		return int64(len(r.Filter.IDs)), nil
	default:
		return 1, nil
	}
	var c conditions
	if err := s.ofRequest(&c, o, source, r); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, s.db.Names.SQL(`SELECT count(*) FROM `+table+` WHERE `+c.text.String()), c.args...).Scan(&n)
	return n, err
}

// Count is how many dead letters or parked events a request of this kind with this filter would concern now.
func (s *Desk) Count(ctx context.Context, kind string, f record.Filter) (n int64, err error) {
	n, _, err = s.CountUntil(ctx, kind, f)
	return n, err
}

// CountUntil also says when it counted. With that as its [record.Filter].Until a request concerns what was counted, as
// far as it is still there.
func (s *Desk) CountUntil(ctx context.Context, kind string, f record.Filter) (n int64, at time.Time, err error) {
	if err := s.db.NeedOne(); err != nil {
		return 0, at, err
	}
	o, source, err := s.db.TableAndSource(ctx)
	r := record.Request{Kind: kind, Filter: f}
	if err == nil {
		err = s.db.Tx(ctx, scanningFenced, func(tx pgx.Tx) (err error) {
			if err = tx.QueryRow(ctx, `SELECT now()`).Scan(&r.RequestedAt); err == nil {
				n, err = s.concerned(ctx, tx, o, source, &r)
			}
			return err
		})
	}
	if err != nil {
		return 0, at, fmt.Errorf("count the matching events: %w", err)
	}
	return n, r.RequestedAt.UTC(), nil
}

// step is one portion of a request about dead letters: chosen in the order of positions, which keeps that of each key,
// and locked, so that no one else can resolve them in the meantime.
func (s *Desk) step(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, r *record.Request,
	from record.DeadCursor, limit int) (ids []int64, next record.DeadCursor, err error) {
	var c conditions
	if err := s.ofRequest(&c, o, source, r); err != nil {
		return nil, from, err
	}
	if from.Set {
		p := from.Position
		n := len(c.args)
		c.args = append(c.args, p.Epoch, !p.Table, int64(p.Order), int64(p.Index), from.ID)
		fmt.Fprintf(&c.text, ` AND (d.epoch, d.from_stream, d.position_order, d.position_index, d.id) >
 ($%d::bigint, $%d::boolean, $%d::bigint, $%d::bigint, $%d::bigint)`, n+1, n+2, n+3, n+4, n+5)
	}
	query := fmt.Sprintf(`SELECT d.id, d.epoch, d.from_stream, d.position_order, d.position_index FROM {dlq} d WHERE %s
ORDER BY d.epoch, d.from_stream, d.position_order, d.position_index, d.id LIMIT %d FOR UPDATE OF d`, c.text.String(),
		limit)
	rows, err := tx.Query(ctx, s.db.Names.SQL(query), c.args...)
	if err != nil {
		return nil, from, err
	}
	next = from
	var fromStream bool
	var order, index int64
	_, err = pgx.ForEachRow(rows, []any{&next.ID, &next.Position.Epoch, &fromStream, &order, &index}, func() error {
		ids = append(ids, next.ID)
		next.Set, next.Position.Table, next.Position.Order, next.Position.Index = true, !fromStream, uint64(order),
			uint32(index)
		return nil
	})
	return ids, next, err
}

// replaySQL parks dead letters again, at the place that they had, with new attempts. What a relay that had lost the
// slot published in the meantime is in the journal, and is not sent again. What is behind one of its key that this
// replay has brought to the broker, and that died again, stays what it is.
var replaySQL = `INSERT INTO {parked} (source, event_id, topic, key, epoch, from_stream, position_order,
 position_index, aggregate_type, aggregate_id, event_type, payload, headers, created_at, extra, retry_count,
 next_retry_at, last_error, error_class, last_error_at, replay)
SELECT d.source, d.original_id, d.topic, d.key, d.epoch, d.from_stream, d.position_order, d.position_index,
 d.aggregate_type, d.aggregate_id, d.event_type, {payload}, {headers}, d.created_at::text, d.extra, 0, now(),
 d.last_error, 'transient', d.dead_at, $3
FROM {dlq} d WHERE d.source = $1 AND d.id = ANY ($2)
 AND NOT EXISTS (SELECT 1 FROM {journal} j WHERE j.source = $1 AND j.event_id = d.original_id
  AND ` + journaledItself + `)
 AND NOT EXISTS (SELECT 1 FROM {dlq} e WHERE e.source = $1 AND e.replay = $3 AND e.dead_at > $4 AND NOT e.holds
  AND e.replayed_at IS NULL AND e.discarded_at IS NULL AND e.topic = d.topic AND e.key = d.key
  AND (e.epoch, e.from_stream, e.position_order, e.position_index) <
   (d.epoch, d.from_stream, d.position_order, d.position_index))`

// journaledItself: what is journaled under the id of a dead letter is not another event that used it again.
var journaledItself = `(j.stream_mark IS NULL OR j.stream_mark < 0 OR NOT d.from_stream
 OR j.stream_mark = ` + outbox.MarkSQL("d") + `)`

var journaledAlreadySQL = `UPDATE {dlq} d SET replayed_at = j.published_at, resolved_by = $3,
 note = coalesce($4, d.note)
FROM {journal} j WHERE d.source = $1 AND d.id = ANY ($2) AND j.source = $1 AND j.event_id = d.original_id
 AND ` + journaledItself

const discardSQL = `UPDATE {dlq} d SET discarded_at = now(), resolved_by = $3, note = coalesce($4, d.note)
 WHERE d.source = $1 AND d.id = ANY ($2)`

// ReplayDead parks the next dead letters of a replay again, and counts them in the request, in one transaction. Fenced.
func (s *Desk) ReplayDead(ctx context.Context, r *record.Request, from record.DeadCursor,
	limit int) (record.Step, error) {
	return s.resolve(ctx, r, from, limit,
		func(tx pgx.Tx, o *db.Table, source int32, ids []int64, step *record.Step) error {
			text := strings.NewReplacer("{payload}", s.payloadOf(o), "{headers}", s.headersOf(o)).Replace(
				s.db.Names.SQL(replaySQL)) + s.readable(o) + " ON CONFLICT DO NOTHING"
			tag, err := tx.Exec(ctx, text, source, ids, r.ID, r.RequestedAt)
			if err == nil {
				step.Parked = tag.RowsAffected()
				_, err = tx.Exec(ctx, s.db.Names.SQL(`UPDATE {dlq} SET replay = $3 WHERE source = $1 AND id = ANY ($2)`), source,
					ids, r.ID)
			}
			if err == nil {
				_, err = tx.Exec(ctx, s.db.Names.SQL(journaledAlreadySQL), source, ids, r.Who, nullable(r.Note))
			}
			return err
		})
}

// refuseLongIDs says, when a replay has done what can be done, that some of what it concerns cannot be.
func (s *Desk) refuseLongIDs(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, r *record.Request) error {
	if r.Kind != record.RequestReplay || !o.TextIDs() {
		return nil
	}
	all := *r
	all.Kind = record.RequestDiscard // which takes them, too
	var c conditions
	if err := s.ofRequest(&c, o, source, &all); err != nil {
		return err
	}
	fmt.Fprintf(&c.text, " AND octet_length(d.original_id) > %d", outbox.MaxID)
	var n int64
	err := tx.QueryRow(ctx, s.db.Names.SQL(`SELECT count(*) FROM {dlq} d WHERE `+c.text.String()), c.args...).Scan(&n)
	if err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%w: %d dead letters are not replayed (INVALID_ID): their ids are longer than the %d bytes that "+
		"the journal of what was published holds; discard them, and insert the events again under shorter ids",
		record.ErrCannot, n, outbox.MaxID)
}

// DiscardDead closes the next dead letters of a discard, returns their lanes, and counts them in the request,
// in one transaction. Fenced.
func (s *Desk) DiscardDead(ctx context.Context, r *record.Request, from record.DeadCursor,
	limit int) (record.Step, error) {
	return s.resolve(ctx, r, from, limit,
		func(tx pgx.Tx, _ *db.Table, source int32, ids []int64, step *record.Step) error {
			if _, err := tx.Exec(ctx, s.db.Names.SQL(discardSQL), source, ids, r.Who, nullable(r.Note)); err != nil {
				return err
			}
			rows, err := tx.Query(ctx,
				s.db.Names.SQL(`SELECT DISTINCT topic, key FROM {dlq} WHERE source = $1 AND id = ANY ($2) AND key IS NOT NULL`),
				source, ids)
			if err != nil {
				return err
			}
			step.Lanes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l record.Lane, err error) {
				err = row.Scan(&l.Topic, &l.Key)
				l.Source = s.db.EventSource()
				return l, err
			})
			return err
		})
}

func (s *Desk) resolve(ctx context.Context, r *record.Request, from record.DeadCursor, limit int,
	do func(pgx.Tx, *db.Table, int32, []int64, *record.Step) error) (record.Step, error) {
	var step record.Step
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, scanningFenced, func(tx pgx.Tx) error {
			step = record.Step{}
			ids, next, err := s.step(ctx, tx, o, source, r, from, limit)
			step.Seen, step.Next = len(ids), next
			if err == nil && len(ids) == 0 {
				if err = s.refuseLongIDs(ctx, tx, o, source, r); err == nil {
					err = s.refuseKept(ctx, tx, o, source, r)
				}
			}
			if err != nil || len(ids) == 0 {
				return err
			}
			if err := do(tx, o, source, ids, &step); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, s.db.Names.SQL(`UPDATE {request} SET done = done + $2 WHERE id = $1`), r.ID, len(ids))
			return err
		})
	}
	if err != nil {
		return record.Step{}, fmt.Errorf("%s dead letters for request %d: %w", r.Kind, r.ID, err)
	}
	return step, nil
}

// RetryNow makes the next parked events of a request due, at most so many, counts them, and says how many they were.
// Fenced.
func (s *Desk) RetryNow(ctx context.Context, r *record.Request, limit int) (n int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, scanningFenced, func(tx pgx.Tx) error {
			var c conditions
			if err := s.ofRequest(&c, o, source, r); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx,
				s.db.Names.SQL(fmt.Sprintf(`UPDATE {parked} SET next_retry_at = now() WHERE source = $1 AND event_id IN
(SELECT p.event_id FROM {parked} p WHERE %s LIMIT %d)`, c.text.String(), limit)), c.args...)
			if n = tag.RowsAffected(); err != nil || n == 0 {
				return err
			}
			r.Done += n
			_, err = tx.Exec(ctx, s.db.Names.SQL(`UPDATE {request} SET done = done + $2 WHERE id = $1`), r.ID, n)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("make parked events due for request %d: %w", r.ID, err)
	}
	if n == 0 && r.Total != nil && *r.Total == 0 && r.Done == 0 {
		return 0, s.noneDue(ctx, r.Filter)
	}
	return n, nil
}

// noneDue says why a retry changes nothing: who asked for one must not wait for what it cannot bring.
func (s *Desk) noneDue(ctx context.Context, f record.Filter) error {
	sum, err := s.ParkedSum(ctx, f)
	switch {
	case err != nil:
		return err
	case sum.Matching == 0:
		return fmt.Errorf("%w: no parked event matches; it may have been published or moved to the dead letters by now",
			record.ErrCannot)
	}
	return fmt.Errorf("%w: none of the %d matching parked events can be made due: %s", record.ErrCannot, sum.Matching,
		sum.WhyNotDue())
}

func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
