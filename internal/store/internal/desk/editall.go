package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const patchableSQL = `SELECT d.original_id::text, {payload}, d.headers::text, ` + keptInTable +
	` FROM {dlq} d WHERE d.id = $1`

// EditAll changes what the next open dead letters that match would send, at most so many, keeps what was there before
// with who changed it, and asks for the replay of those that it has changed where that is wanted, in one durable
// transaction: an edit that is stopped between two portions is begun again, and changes the rest. What died after
// Filter.Until, or after the call, is not meant. Anybody may edit, whether a relay runs or not; it is not fenced.
// [record.ErrEdit]: no dead letter can become that; [record.ErrFilter]: none can be chosen like this.
func (s *Desk) EditAll(ctx context.Context, e record.EditAll, from record.DeadCursor,
	limit int) (step record.EditStep, err error) {
	if err := errors.Join(s.db.NeedOne(), e.Patch.Check(), e.Filter.Check(), e.Filter.CheckTexts()); err != nil {
		return step, err
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		e.Who, e.Note = s.db.Brief(e.Who, maxWho), s.db.Brief(e.Note, maxNote)
		err = s.db.Tx(ctx, scanningFenced, func(tx pgx.Tx) error {
			step, err = s.editStep(ctx, tx, o, source, e, from, limit)
			return err
		})
	}
	if err != nil {
		return record.EditStep{}, fmt.Errorf("edit dead letters: %w", err)
	}
	return step, nil
}

func (s *Desk) editStep(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, e record.EditAll,
	from record.DeadCursor, limit int) (step record.EditStep, err error) {
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return step, err
	}
	open := record.Request{Kind: record.RequestDiscard, Filter: e.Filter, RequestedAt: now}
	numbers, next, err := s.step(ctx, tx, o, source, &open, from, limit)
	if err != nil {
		return step, err
	}
	step.Seen, step.Next = len(numbers), next
	var edited []string
	for _, number := range numbers { // one at a time: payloads may be large
		id, changed, err := s.patch(ctx, tx, o, source, number, e)
		switch {
		case errors.Is(err, record.ErrEdit):
			step.Refused = append(step.Refused, record.NotPatched{ID: id, Why: s.db.Clean(err.Error())})
		case err != nil:
			return step, err
		case changed:
			edited = append(edited, id)
		}
	}
	if step.Edited = len(edited); e.Replay && len(edited) > 0 {
		step.Request, err = s.requestReplay(ctx, tx, edited, e.Who, e.Note)
	}
	return step, err
}

// patch changes one dead letter, which is locked.
func (s *Desk) patch(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, number int64,
	e record.EditAll) (id string, changed bool, err error) {
	var payload []byte
	var headers *string
	var kept bool
	err = tx.QueryRow(ctx, s.editText(o, patchableSQL), number).Scan(&id, &payload, &headers, &kept)
	switch {
	case err != nil:
		return id, false, err
	case kept:
		return id, false, fmt.Errorf("%w: its payload is in the outbox only, because the event is too large",
			record.ErrEdit)
	}
	var was []byte
	if headers != nil {
		was = []byte(*headers)
	}
	now := record.Edit{ID: id, Who: e.Who, Note: e.Note}
	if now.Payload, now.Headers, changed, err = e.Patch.Apply(payload, was); err == nil && changed {
		err = now.Check()
	}
	if err != nil || !changed {
		return id, false, err
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // what Postgres refuses leaves the others as they are
		return s.change(ctx, tx, o, source, number, now, payload, headers)
	})
	if pg, is := errors.AsType[*pgconn.PgError](err); is && isData(pg.Code) {
		err = fmt.Errorf("%w: Postgres refuses it for a column of type %s: %s", record.ErrEdit, o.PayloadType, pg.Message)
	}
	return id, err == nil, err
}
