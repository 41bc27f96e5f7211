package outcome

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// unparkSQL takes events out of the parked ones, and says which were dead letters that were replayed.
const unparkSQL = `WITH gone AS (DELETE FROM {parked} WHERE source = $1 AND event_id = ANY($2)
 RETURNING event_id, replay)
SELECT event_id::text, replay FROM gone WHERE replay IS NOT NULL`

const closeReplayedSQL = `UPDATE {dlq} d SET replayed_at = now(), resolved_by = r.who, note = coalesce(r.note, d.note)
FROM unnest($2, $3::bigint[]) AS g(event_id, replay) JOIN {request} r ON r.id = g.replay WHERE d.source = $1
 AND d.original_id = g.event_id`

// SettleRetried journals parked events that were published, takes them out of the parked ones, and closes the dead
// letters of those that were replayed, in one transaction. The journal has the place where they are now, also of those
// that it has a place of already: another relay that had the slot for a while may have come late with one that is gone.
// Fenced.
func (s *Writer) SettleRetried(ctx context.Context, published []record.Published) error {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.settleRetried(ctx, o, source, published, func(tx pgx.Tx) error {
			return s.copyInto(ctx, tx.Conn().PgConn(), "", "", o, source, published)
		})
		if isUniqueViolation(err) { // some are journaled
			var journal []*db.Params
			if journal, err = s.journalParams(o.IDType, source, published); err == nil {
				err = s.settleRetried(ctx, o, source, published, func(tx pgx.Tx) error {
					return execEach(ctx, tx, s.db.SQL(o, rejournalSQL), journal)
				})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("settle %d retried events: %w", len(published), err)
	}
	return nil
}

func (s *Writer) settleRetried(ctx context.Context, o *db.Table, source int32, published []record.Published,
	journal func(pgx.Tx) error) error {
	return s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		if err := journal(tx); err != nil {
			return err
		}
		return bySource(published, source, sourceOf, func(source int32, published []record.Published) error {
			return s.unpark(ctx, tx, o, source, published)
		})
	})
}

// unpark takes events out of the parked ones, and closes the dead letters of those that were replayed.
func (s *Writer) unpark(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, published []record.Published) error {
	p := new(db.Params).Int4(source)
	if err := p.IDs(o.IDType, len(published), func(i int) []byte { return published[i].ID }); err != nil {
		return err
	}
	gone := tx.Conn().PgConn().ExecParams(ctx, s.db.Names.SQL(unparkSQL), p.Values, p.OIDs, p.Formats, nil).Read()
	if gone.Err != nil || len(gone.Rows) == 0 {
		return gone.Err
	}
	replayed := new(db.Params).Int4(source)
	if err := replayed.IDs(o.IDType, len(gone.Rows), func(i int) []byte { return gone.Rows[i][0] }); err != nil {
		return err
	}
	requests := make([]string, len(gone.Rows))
	for i, row := range gone.Rows {
		requests[i] = string(row[1])
	}
	replayed.Add(pgtype.Int8ArrayOID, db.TextFormat, []byte("{"+strings.Join(requests, ",")+"}"))
	return db.ExecWire(ctx, tx, s.db.Names.SQL(closeReplayedSQL), replayed)
}

const retryLaterSQL = `UPDATE {parked} SET retry_count = u.attempts, last_error = u.text, error_class = u.class,
 last_error_at = now(),
 next_retry_at = CASE WHEN u.micros >= 0 THEN now() + u.micros * interval '1 microsecond'
 WHEN u.micros = -2 THEN 'infinity'::timestamptz END
FROM unnest($2, $3, $4, $5, $6) AS u(id, attempts, micros, text, class) WHERE source = $1 AND event_id = u.id`

// RetryLater notes failed attempts of parked events, all or none. Fenced.
func (s *Writer) RetryLater(ctx context.Context, failed []record.Attempt) error {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
			return bySource(failed, source, func(a *record.Attempt) int32 { return a.Source },
				func(source int32, failed []record.Attempt) error { return s.retryLater(ctx, tx, o, source, failed) })
		})
	}
	if err != nil {
		return fmt.Errorf("record %d failed attempts: %w", len(failed), err)
	}
	return nil
}

func (s *Writer) retryLater(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, failed []record.Attempt) error {
	n := len(failed)
	p := new(db.Params).Int4(source)
	if err := p.IDs(o.IDType, n, func(i int) []byte { return failed[i].ID }); err != nil {
		return err
	}
	attempts, micros := db.ArrayHeader(nil, pgtype.Int4OID, n), db.ArrayHeader(nil, pgtype.Int8OID, n)
	texts, classes := db.ArrayHeader(nil, pgtype.TextOID, n), db.ArrayHeader(nil, pgtype.TextOID, n)
	for i := range failed {
		f := &failed[i]
		attempts, micros = db.AppendInt4(attempts, int32(f.Attempts)), db.AppendInt8(micros, dueParam(f.RetryIn))
		texts, classes = db.AppendText(texts, s.db.Clean(f.Text)), db.AppendText(classes, string(f.Class))
	}
	p.Add(pgtype.Int4ArrayOID, db.BinaryFormat, attempts).Add(pgtype.Int8ArrayOID, db.BinaryFormat, micros)
	p.Add(pgtype.TextArrayOID, db.BinaryFormat, texts).Add(pgtype.TextArrayOID, db.BinaryFormat, classes)
	return db.ExecWire(ctx, tx, s.db.SQL(o, retryLaterSQL), p)
}

// GiveUp turns a parked event into a dead letter, in one transaction; one that is not parked any more is left as it is.
// One that was a dead letter before is that again, with the new reason. Behind are the dead letters that were replayed
// behind one that stops them: they are not parked any more, and open again. Fenced.
func (s *Writer) GiveUp(ctx context.Context, dead record.Dead) (behind int64, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		source = cmp.Or(dead.Event.Source, source)
		bytes := len(dead.Event.Payload) + len(dead.Event.Headers)
		err = s.db.Fenced(ctx, db.Writing.For(bytes), func(tx pgx.Tx) error {
			behind = 0
			p := new(db.Params).Int4(source)
			if err := p.ID(o.IDType, dead.Event.ID); err != nil {
				return err
			}
			var found, replayed bool
			result := tx.Conn().PgConn().ExecParams(ctx,
				s.db.SQL(o, `DELETE FROM {parked} WHERE source = $1 AND event_id = $2 RETURNING replay IS NOT NULL`), p.Values,
				p.OIDs, p.Formats, nil).Read()
			if len(result.Rows) > 0 {
				found, replayed = true, string(result.Rows[0][0]) == "t"
			}
			switch {
			case result.Err != nil || !found: // it was settled already, maybe by another relay
				return result.Err
			case replayed:
				again, err := s.dieAgain(ctx, tx, o, source, &dead)
				if err == nil && again && dead.Stops && dead.Key != nil {
					behind, err = s.takeBack(ctx, tx, source, &dead)
				}
				if err != nil || again {
					return err
				}
			}
			return s.insertDead(ctx, tx, o, source, &dead)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("move a parked event to the dead letters: %w", err)
	}
	return behind, nil
}

// takeBackSQL takes dead letters back that are replayed behind a place in a lane. What is published once more without
// being a dead letter stays: nothing else knows of it. Their outbox rows may say in the meantime that they are tried
// again.
const takeBackSQL = `WITH back AS (DELETE FROM {parked} p USING {dlq} d WHERE p.source = $1 AND p.topic = $2
 AND md5(p.key) = md5($3) AND p.key = $3
 AND (p.epoch, p.from_stream, p.position_order, p.position_index) > ($4, $5, $6, $7) AND p.replay IS NOT NULL
 AND d.source = p.source AND d.original_id = p.event_id AND d.replayed_at IS NULL AND d.discarded_at IS NULL
 RETURNING p.event_id)
UPDATE {dlq} d SET shown_at = NULL FROM back WHERE d.source = $1 AND d.original_id = back.event_id`

// takeBack has the dead letters that were replayed behind one that died again stay behind it.
func (s *Writer) takeBack(ctx context.Context, tx pgx.Tx, source int32, d *record.Dead) (int64, error) {
	at := d.Event.Position
	p := new(db.Params).Int4(source).Text(d.Topic).Add(pgtype.ByteaOID, db.BinaryFormat, d.Key)
	p.Int8(at.Epoch).Boolean(!at.Table).Int8(int64(at.Order)).Int8(int64(at.Index))
	result := tx.Conn().PgConn().ExecParams(ctx, s.db.Names.SQL(takeBackSQL), p.Values, p.OIDs, p.Formats, nil).Read()
	if result.Err != nil {
		return 0, fmt.Errorf("take back what is replayed behind %.64q: %w", d.Event.ID, result.Err)
	}
	return result.CommandTag.RowsAffected(), nil
}
