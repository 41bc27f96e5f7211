package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// lockDeadSQL keeps replays and other edits away. It is a statement of its own: what it has waited for is seen by the
// next one, all but the row itself.
const lockDeadSQL = `SELECT FROM {dlq} d WHERE d.source = $1 AND d.original_id = $2::text::{id} FOR UPDATE`

// editableSQL reads a dead letter that is locked.
const editableSQL = `SELECT d.id, {payload}, d.headers::text,
 CASE WHEN d.replayed_at IS NOT NULL THEN 'it was published already'
  WHEN d.discarded_at IS NOT NULL THEN 'it was discarded'
  WHEN EXISTS (SELECT FROM {parked} q WHERE q.source = d.source AND q.event_id = d.original_id)
  THEN 'it is being replayed' ELSE '' END,
 (SELECT count(*) FROM {edit} e WHERE e.source = d.source AND e.event_id = d.original_id), ` + keptInTable + `
FROM {dlq} d WHERE d.source = $1 AND d.original_id = $2::text::{id}`

const keepFormerSQL = `INSERT INTO {edit} (source, event_id, who, note, payload, headers)
SELECT $1, $2::text::{id}, $3, $4, $5, $6`

const editSQL = `UPDATE {dlq} SET payload = {new}, headers = $3::text::{headers}, edited_at = now(), edited_by = $4
 WHERE id = $1`

// EditDead changes what an open dead letter would send, keeps what was there before with who changed it, and asks for
// its replay where that is wanted, in one durable transaction: a crash leaves all of it or nothing. request is the
// number of the replay, 0 without. Anybody may edit, whether a relay runs or not; it is not fenced.
// [record.ErrNoDeadLetter]: there is none; [record.ErrCannot]: it is none that is open, or someone edited it
// in the meantime; [record.ErrEdit]: the table does not take it, or no message would, or it has
// none for a payload that is in the outbox only.
func (s *Desk) EditDead(ctx context.Context, e record.Edit) (request int64, err error) {
	if err := s.db.NeedOne(); err != nil {
		return 0, err
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, fmt.Errorf("edit the dead letter: %w", err)
	}
	if err := db.CheckIDs(o, []string{e.ID}); err != nil {
		return 0, fmt.Errorf("%w: %w", record.ErrNoDeadLetter, err)
	}
	if err := e.Check(); err != nil {
		return 0, err
	}
	e.Who, e.Note = s.db.Brief(e.Who, maxWho), s.db.Brief(e.Note, maxNote)
	err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) (err error) {
		if err = s.edit(ctx, tx, o, source, e); err == nil && e.Replay {
			request, err = s.requestReplay(ctx, tx, []string{e.ID}, e.Who, e.Note)
		}
		return err
	})
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, record.ErrNoDeadLetter), errors.Is(err, record.ErrCannot), err == nil:
		return request, err
	case errors.As(err, &pg) && isData(pg.Code):
		return 0, fmt.Errorf("%w: Postgres refuses it for a column of type %s: %s", record.ErrEdit, o.PayloadType, pg.Message)
	}
	return 0, fmt.Errorf("edit the dead letter: %w", err)
}

// isData tells that values do not fit: classes 22, data exceptions, and 23, constraints.
func isData(code string) bool { return len(code) == 5 && (code[:2] == "22" || code[:2] == "23") }

// editText fills in how payload and headers are read and written.
func (s *Desk) editText(o *db.Table, text string) string {
	headers := o.HeadersType
	if headers == "" {
		headers = "jsonb" // of a table of dead letters whose outbox has none
	}
	edited := `convert_from($2::bytea, 'UTF8')::` + o.PayloadType
	if o.PayloadType == "bytea" {
		edited = `$2::bytea`
	}
	return s.db.Names.SQL(strings.NewReplacer("{payload}", payloadBytes(o), "{new}", edited, "{headers}", headers,
		"{id}", o.IDType+o.Collate()).Replace(text))
}

func (s *Desk) edit(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, e record.Edit) error {
	var number, edits int64
	var payload []byte
	var wasHeaders *string
	var closed string
	var kept bool
	if _, err := tx.Exec(ctx, s.editText(o, lockDeadSQL), source, e.ID); err != nil {
		return err
	}
	err := tx.QueryRow(ctx, s.editText(o, editableSQL), source, e.ID).Scan(&number, &payload, &wasHeaders, &closed, &edits,
		&kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return record.ErrNoDeadLetter
	case err != nil:
		return err
	case closed != "":
		return fmt.Errorf("%w: %s", record.ErrCannot, closed)
	case kept && e.Payload == nil: // what was not read would be sent as a tombstone
		return fmt.Errorf("%w: its payload is in the outbox only, because the event is too large: give it another one, or "+
			"raise limits.max_event_bytes, restart the relay and replay it", record.ErrEdit)
	case edits != int64(e.Seen):
		return fmt.Errorf("%w: it was edited at the same time; check it again: cdc-relay dlq show %s%s",
			record.ErrCannot, e.ID, record.OutboxFlag(s.db.MemberName()))
	}
	return s.change(ctx, tx, o, source, number, e, payload, wasHeaders)
}

// change writes what a dead letter is to send, and keeps what was there before.
func (s *Desk) change(ctx context.Context, tx pgx.Tx, o *db.Table, source int32, number int64, e record.Edit,
	payload []byte, headers *string) error {
	if _, err := tx.Exec(ctx, s.editText(o, keepFormerSQL), source, e.ID, e.Who, nullable(e.Note), payload,
		headers); err != nil {
		return err
	}
	var wants *string
	if e.Headers != nil {
		text := string(e.Headers)
		wants = &text
	}
	_, err := tx.Exec(ctx, s.editText(o, editSQL), number, e.Payload, wants, e.Who)
	return err
}

func (s *Desk) requestReplay(ctx context.Context, tx pgx.Tx, ids []string, who, note string) (id int64, err error) {
	filter, err := json.Marshal(record.Filter{IDs: ids, Source: s.db.EventSource()})
	if err == nil {
		id, err = s.addRequest(ctx, tx, record.RequestReplay, filter, who, note)
	}
	return id, err
}

// edits are those of an event, the newest first.
func (s *Desk) edits(ctx context.Context, o *db.Table, source int32, id string) (list []record.Edited, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(`SELECT edited_at, who, coalesce(note, ''), payload,
 `+db.ToBytes("headers")+` FROM {edit} WHERE source = $1 AND event_id = $2::text::`+o.IDType+o.Collate()+`
ORDER BY id DESC`), source, id)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e record.Edited, err error) {
			err = row.Scan(&e.At, &e.Who, &e.Note, &e.Payload, &e.Headers)
			return e, err
		})
		return err
	})
	return list, err
}
