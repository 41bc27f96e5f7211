package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The kinds of requests.
const (
	RequestReplay  = "replay"  // publish dead letters after all
	RequestDiscard = "discard" // close dead letters for good
	RequestRetry   = "retry"   // try parked events at once
	RequestPause   = "pause"   // take nothing in
	RequestResume  = "resume"
	// RequestReconcile looks at the whole table: total is what was not recorded when it was seen, done what of it was missed.
	RequestReconcile = "reconcile"
	// RequestRepublish publishes once more what the journal knows and the topics have lost; it names ids.
	RequestRepublish = "republish"
)

// Bounds of what people say, in bytes.
const (
	maxWho  = 200
	maxNote = 2000
)

// Request is what somebody asked of the relay that holds the slot. Names in JSON are stable.
type Request struct {
	ID          int64      `json:"id"`
	Kind        string     `json:"kind"`
	Filter      Filter     `json:"filter"`
	Who         string     `json:"who"`
	Note        string     `json:"note,omitempty"`
	RequestedAt time.Time  `json:"requested_at"`
	StartedAt   *time.Time `json:"started_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Total       *int64     `json:"total"` // what it concerned when it was started
	Done        int64      `json:"done"`
	Waiting     int64      `json:"waiting"` // replayed events that are not published yet and have not died again
	Error       string     `json:"error,omitempty"`

	Unreadable error `json:"-"` // its filter is not one of this version
}

// ErrNoRequest says that there is no request with the number.
var ErrNoRequest = errors.New("there is no request with this number")

// AddRequest asks the relay that holds the slot, now or later, to do something; it is durable when AddRequest returns.
// Anybody may ask: it is not fenced.
func (s *Store) AddRequest(ctx context.Context, kind string, f Filter, who, note string) (id int64, err error) {
	if len(f.IDs) > 0 {
		if _, err := s.knownOutbox(ctx); err != nil {
			return 0, err
		}
		if err := s.checkIDs(f); err != nil {
			return 0, err
		}
	}
	if err := f.checkTexts(); err != nil {
		return 0, err
	}
	filter, err := f.marshal()
	if err == nil {
		err = s.one(ctx, writing, func(row pgx.Row) error { return row.Scan(&id) },
			s.names.sql(`INSERT INTO {request} (slot, kind, filter, who, note) VALUES ($1, $2, $3::jsonb, $4, NULLIF($5, '')) RETURNING id`),
			s.config.Slot, kind, string(filter), brief(who, maxWho), brief(note, maxNote))
	}
	if err != nil {
		return 0, fmt.Errorf("write the request: %w", err)
	}
	return id, nil
}

func brief(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return clean(text)
}

// requestColumns has times as microseconds: as text they have the form of the database's datestyle, and [Store.NextRequest] sets none.
const requestColumns = `r.id, r.kind, r.filter::text, r.who, coalesce(r.note, ''), (extract(epoch FROM r.requested_at) * 1000000)::bigint,
 (extract(epoch FROM r.started_at) * 1000000)::bigint, (extract(epoch FROM r.finished_at) * 1000000)::bigint, r.total, r.done, coalesce(r.error, '')`

func scanRequest(row pgx.Row, more ...any) (*Request, error) {
	var r Request
	var filter string
	var requested int64
	var started, finished *int64
	err := row.Scan(append([]any{&r.ID, &r.Kind, &filter, &r.Who, &r.Note, &requested, &started, &finished, &r.Total, &r.Done, &r.Error}, more...)...)
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
func (s *Store) Request(ctx context.Context, id int64) (*Request, error) {
	var r *Request
	err := s.one(ctx, reading, func(row pgx.Row) (err error) {
		var waiting int64
		if r, err = scanRequest(row, &waiting); err == nil {
			r.Waiting = waiting
		}
		return err
	}, s.names.sql(`SELECT `+requestColumns+`, (SELECT count(*) FROM {parked} p WHERE p.replay = r.id) FROM {request} r WHERE r.slot = $1 AND r.id = $2`), s.config.Slot, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNoRequest
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return r, nil
}

// NextRequest is the request to be worked at: pauses and resumes first, then the oldest that is not finished, reconciles, which
// may take long, and republishes, which may wait for what other requests decide, last; nil when there is none. It is asked several times a second, so it is one statement by an index that is empty most of the time.
func (s *Store) NextRequest(ctx context.Context) (*Request, error) {
	r, err := scanRequest(s.pool.QueryRow(ctx, s.names.sql(`SELECT `+requestColumns+` FROM {request} r WHERE r.slot = $1 AND r.finished_at IS NULL
ORDER BY r.kind NOT IN ('pause', 'resume'), r.kind IN ('reconcile', 'republish'), r.id LIMIT 1`), s.config.Slot))
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
func (s *Store) StartRequest(ctx context.Context, r *Request) error {
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.fenced(ctx, scanningFenced, func(tx pgx.Tx) error {
			total, err := s.concerned(ctx, tx, o, source, r)
			if err != nil {
				return err
			}
			return tx.QueryRow(ctx, s.names.sql(`UPDATE {request} SET started_at = coalesce(started_at, now()), total = coalesce(total, $2) WHERE id = $1 RETURNING started_at, total`),
				r.ID, total).Scan(&r.StartedAt, &r.Total)
		})
	}
	if err != nil {
		return fmt.Errorf("start request %d: %w", r.ID, err)
	}
	return nil
}

// NoteRequest notes what the request concerned and how much of it is done. Fenced.
func (s *Store) NoteRequest(ctx context.Context, id, total, done int64) error {
	err := s.fenced(ctx, writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.names.sql(`UPDATE {request} SET total = $2, done = $3 WHERE id = $1`), id, total, done)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what request %d did: %w", id, err)
	}
	return nil
}

// FinishRequest closes the request; a text says why it could not be done. Fenced.
func (s *Store) FinishRequest(ctx context.Context, id int64, failed string) error {
	err := s.fenced(ctx, writing, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.names.sql(`UPDATE {request} SET started_at = coalesce(started_at, now()), finished_at = now(), error = NULLIF($2, '')
WHERE id = $1 AND finished_at IS NULL`), id, clean(failed))
		return err
	})
	if err != nil {
		return fmt.Errorf("finish request %d: %w", id, err)
	}
	return nil
}

// scanningFenced is for a count over all dead letters or parked events.
var scanningFenced = limits{lock: writing.lock, statement: 2 * time.Minute, commit: durable}
