package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Bounds of what people say, in bytes.
const (
	maxWho  = 200
	maxNote = 2000
)

// tellRequestSQL is addRequestSQL that tells the relay by its stream, too, for roles that may.
const (
	addRequestSQL = `INSERT INTO {request} (slot, kind, filter, who, note)
 VALUES ($1, $2, $3::jsonb, $4, NULLIF($5, '')) RETURNING id`
	tellRequestSQL = `WITH added AS (` + addRequestSQL + `)
SELECT id FROM added, pg_logical_emit_message(true, '` + record.TokenPrefix + `', $6::text)`
	mayTellSQL = `SELECT coalesce(bool_or(has_function_privilege(p.oid, 'EXECUTE')), false)
 FROM pg_proc p WHERE ` + db.Emits
)

// AddRequest asks the relay that holds the slot, now or later, to do something; it is durable when AddRequest returns.
// Anybody may ask: it is not fenced. What concerns events is about those of this outbox, if the slot has several.
func (s *Desk) AddRequest(ctx context.Context, kind string, f record.Filter, who, note string) (id int64, err error) {
	switch kind {
	case record.RequestReplay, record.RequestDiscard, record.RequestRetry, record.RequestRepublish:
		if err := s.db.NeedOne(); err != nil {
			return 0, err
		}
		f.Source = s.db.EventSource()
	}
	if len(f.IDs) > 0 {
		if _, err := s.db.Table(ctx); err != nil {
			return 0, err
		}
		if err := s.checkIDs(f); err != nil {
			return 0, err
		}
	}
	if err := f.CheckTexts(); err != nil {
		return 0, err
	}
	filter, err := json.Marshal(f)
	if err == nil {
		err = s.db.LearnEncoding(ctx)
	}
	if err == nil {
		err = s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) (err error) {
			id, err = s.addRequest(ctx, tx, kind, filter, s.db.Brief(who, maxWho), s.db.Brief(note, maxNote))
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("write the request: %w", err)
	}
	return id, nil
}

// addRequest writes a request. The relay finds one that its stream does not tell of, too, a little later.
func (s *Desk) addRequest(ctx context.Context, tx pgx.Tx, kind string, filter []byte, who, note string) (id int64,
	err error) {
	var may bool
	if err := tx.QueryRow(ctx, mayTellSQL).Scan(&may); err != nil {
		return 0, err
	}
	text, args := addRequestSQL, []any{s.db.Config.Slot, kind, string(filter), who, note}
	if may {
		text, args = tellRequestSQL, append(args, record.AskedToken(s.db.Config.Slot))
	}
	err = tx.QueryRow(ctx, s.db.Names.SQL(text), args...).Scan(&id)
	return id, err
}

// requestColumns has times as microseconds: as text they have the form of the database's datestyle, and
// [Desk.NextRequest] sets none.
const requestColumns = `r.id, r.kind, r.filter::text, r.who, coalesce(r.note, ''),
 (extract(epoch FROM r.requested_at) * 1000000)::bigint,
 (extract(epoch FROM r.started_at) * 1000000)::bigint, (extract(epoch FROM r.finished_at) * 1000000)::bigint,
 r.total, r.done, coalesce(r.error, '')`

func scanRequest(row pgx.Row, more ...any) (*record.Request, error) {
	var r record.Request
	var filter string
	var requested int64
	var started, finished *int64
	err := row.Scan(append([]any{&r.ID, &r.Kind, &filter, &r.Who, &r.Note, &requested, &started, &finished, &r.Total,
		&r.Done, &r.Error}, more...)...)
	if err != nil {
		return nil, err
	}
	r.RequestedAt = time.UnixMicro(requested).UTC()
	for _, at := range []struct {
		micros *int64
		to     **time.Time
	}{{started, &r.StartedAt}, {finished, &r.FinishedAt}} {
		if at.micros != nil {
			t := time.UnixMicro(*at.micros).UTC()
			*at.to = &t
		}
	}
	// What a newer version wrote and this one does not know must not be taken for "everything".
	decoder := json.NewDecoder(strings.NewReader(filter))
	decoder.DisallowUnknownFields()
	r.Unreadable = decoder.Decode(&r.Filter)
	return &r, nil
}

// Request reads one request. ErrNoRequest: there is none, or it is another slot's.
func (s *Desk) Request(ctx context.Context, id int64) (*record.Request, error) {
	var r *record.Request
	err := s.db.One(ctx, db.Reading, func(row pgx.Row) (err error) {
		var waiting int64
		if r, err = scanRequest(row, &waiting); err == nil {
			r.Waiting = waiting
		}
		return err
	}, s.db.Names.SQL(`SELECT `+requestColumns+
		`, (SELECT count(*) FROM {parked} p WHERE p.replay = r.id) FROM {request} r WHERE r.slot = $1 AND r.id = $2`),
		s.db.Config.Slot, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, record.ErrNoRequest
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return r, nil
}

// NextRequest is the request to be worked at: pauses and resumes first, then the oldest that is not finished,
// reconciles, which may take long, and republishes, which may wait for what other requests decide, last; nil when there
// is none. It is asked several times a second, so it is one statement by an index that is empty most of the time.
func (s *Desk) NextRequest(ctx context.Context) (*record.Request, error) {
	var r *record.Request
	err := s.db.One(ctx, db.Reading, func(row pgx.Row) (err error) {
		r, err = scanRequest(row)
		return err
	}, s.db.Names.SQL(`SELECT `+requestColumns+` FROM {request} r WHERE r.slot = $1 AND r.finished_at IS NULL
ORDER BY r.kind NOT IN ('pause', 'resume'), r.kind IN ('reconcile', 'republish'), r.id LIMIT 1`), s.db.Config.Slot)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for requests: %w", err)
	}
	return r, nil
}

// StartRequest notes that work on the request begins, and on what number of dead letters or parked events. A request
// that was begun before keeps what was noted then. Fenced.
func (s *Desk) StartRequest(ctx context.Context, r *record.Request) error {
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.db.Fenced(ctx, scanningFenced, func(tx pgx.Tx) error {
			total, err := s.concerned(ctx, tx, o, source, r)
			if err != nil {
				return err
			}
			return tx.QueryRow(ctx,
				s.db.Names.SQL(
					`UPDATE {request} SET started_at = coalesce(started_at, now()), total = coalesce(total, $2) WHERE id = $1
 RETURNING started_at, total`),
				r.ID, total).Scan(&r.StartedAt, &r.Total)
		})
	}
	if err != nil {
		return fmt.Errorf("start request %d: %w", r.ID, err)
	}
	return nil
}

// NoteRequest notes what the request concerned and how much of it is done. Fenced.
func (s *Desk) NoteRequest(ctx context.Context, id, total, done int64) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.Names.SQL(`UPDATE {request} SET total = $2, done = $3 WHERE id = $1`), id, total, done)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the progress of request %d: %w", id, err)
	}
	return nil
}

// FinishRequest closes the request; a text says why it could not be done. Fenced.
func (s *Desk) FinishRequest(ctx context.Context, id int64, failed string) error {
	err := s.db.Fenced(ctx, db.Writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx,
			s.db.Names.SQL(
				`UPDATE {request} SET started_at = coalesce(started_at, now()), finished_at = now(), error = NULLIF($2, '')
WHERE id = $1 AND finished_at IS NULL`), id, s.db.Clean(failed))
		return err
	})
	if err != nil {
		return fmt.Errorf("finish request %d: %w", id, err)
	}
	return nil
}

// scanningFenced is for a count over all dead letters or parked events.
var scanningFenced = db.Limits{Lock: db.Writing.Lock, Statement: 2 * time.Minute, Commit: db.Durable}
