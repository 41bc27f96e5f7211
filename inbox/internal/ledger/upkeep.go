package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counts are the waiting and the dead events of all partitions.
type Counts struct {
	ParkedEvents, ParkedKeys, DeadOpen int64
}

// Count looks.
func (l *Ledger) Count(ctx context.Context) (c Counts, err error) {
	err = l.pool.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM `+l.schema+`inbox_parked WHERE consumer = $1),
		(SELECT count(DISTINCT (topic, partition, lane)) FROM `+l.schema+`inbox_parked WHERE consumer = $1),
		(SELECT count(*) FROM `+l.schema+`inbox_dead
			WHERE consumer = $1 AND replayed_at IS NULL AND discarded_at IS NULL)`, l.consumer).
		Scan(&c.ParkedEvents, &c.ParkedKeys, &c.DeadOpen)
	if err != nil {
		return c, fmt.Errorf("count what waits: %w", err)
	}
	l.parked.Store(c.ParkedEvents)
	return c, nil
}

// Forget looks through the next blocks of the table and deletes what was decided longer ago than keep, unless another
// process has just done so. Ids of parked events and of dead letters stay. It says when to look through the next.
func (l *Ledger) Forget(ctx context.Context, keep time.Duration) (pause time.Duration, err error) {
	err = l.within(ctx, "forget old ids", func(tx pgx.Tx) error {
		var size int64
		err := tx.QueryRow(ctx, "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint",
			l.schema+"inbox_event").Scan(&size)
		if err != nil {
			return err
		}
		var blocks int64
		blocks, pause = forgetting(size, keep)
		_, err = tx.Exec(ctx, "SELECT "+l.schema+`inbox_forget($1, $2 * interval '1 second', $3::integer,
			$4 * interval '1 second')`, l.name, keep.Seconds(), blocks, pause.Seconds()/2)
		return err
	})
	return pause, err
}

const (
	forgetBlocks = 128 // 1 MB, some 11,000 ids, in a transaction
	forgetMost   = 16 * forgetBlocks
	forgetLaps   = 14 // of the table in the time for which ids are kept, so that none stays much longer
	forgetOften  = 250 * time.Millisecond
	forgetSeldom = time.Minute
)

// forgetting is how many blocks of a table of that size are looked through at once, and how often.
func forgetting(size int64, keep time.Duration) (blocks int64, pause time.Duration) {
	lap := keep / forgetLaps
	if pause = lap / time.Duration(max(size/forgetBlocks, 1)); pause >= forgetOften {
		return forgetBlocks, min(pause, forgetSeldom)
	}
	return min(max(size/int64(max(lap/forgetOften, 1)), forgetBlocks), forgetMost), forgetOften
}

// Suspicion is how often an event was begun, since a process died, by processes that died in their turn.
type Suspicion struct {
	Seen, Alone int
}

// Suspects are those of the events that were begun and have not ended, by their place in the list.
func (l *Ledger) Suspects(ctx context.Context, ids []ID) (map[int]Suspicion, error) {
	sources, events := columns(ids)
	rows, err := l.pool.Query(ctx, `SELECT u.place - 1, s.seen, s.alone
		FROM unnest($2::smallint[], $3::text[]) WITH ORDINALITY AS u (source, id, place)
		JOIN `+l.schema+`inbox_suspect s ON s.consumer = $1 AND s.source = u.source AND s.event_id = u.id`,
		l.consumer, sources, events)
	if err != nil {
		return nil, fmt.Errorf("look for suspects: %w", err)
	}
	defer rows.Close()
	found := map[int]Suspicion{}
	for rows.Next() {
		var place int
		var s Suspicion
		if err := rows.Scan(&place, &s.Seen, &s.Alone); err != nil {
			return nil, fmt.Errorf("look for suspects: %w", err)
		}
		found[place] = s
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for suspects: %w", err)
	}
	return found, nil
}

// Suspect notes that the events are begun, before they are: alone, or among others.
func (l *Ledger) Suspect(ctx context.Context, ids []ID, alone bool) error {
	sources, events := columns(ids)
	return l.within(ctx, "note what is begun", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO `+l.schema+`inbox_suspect AS s (consumer, source, event_id, seen, alone)
			SELECT $1, u.source, u.id, CASE WHEN $4 THEN 0 ELSE 1 END, CASE WHEN $4 THEN 1 ELSE 0 END
			FROM unnest($2::smallint[], $3::text[]) AS u (source, id) ORDER BY u.source, u.id COLLATE "C"
			ON CONFLICT (consumer, source, event_id) DO UPDATE
			SET seen = s.seen + excluded.seen, alone = s.alone + excluded.alone`,
			l.consumer, sources, events, alone)
		return err
	})
}

// executor is a pool or a transaction.
type executor interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Acquit takes events off the suspects, in the transaction that has their effects; nil: in one of its own.
func (l *Ledger) Acquit(ctx context.Context, tx pgx.Tx, ids []ID) error {
	var on executor = l.pool
	if tx != nil {
		on = tx
	}
	sources, events := columns(ids)
	rows, err := on.Query(ctx, `DELETE FROM `+l.schema+`inbox_suspect s
		USING unnest($2::smallint[], $3::text[]) AS u (source, id)
		WHERE s.consumer = $1 AND s.source = u.source AND s.event_id = u.id`, l.consumer, sources, events)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("acquit events: %w", err)
	}
	return nil
}
