package table

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const (
	catchUpBytes = 4 << 20 // a page of rows ends when it holds this much
	firstFetch   = 8       // rows; then as many as fit by the average so far
	mostFetch    = 512

	// catchUpSpan is how many rows of the list one statement looks at: after a crash millions of them may be recorded, and
	// nothing that a statement has looked at is known to the next one when its time was not enough.
	catchUpSpan = 10_000
)

// CatchUpRows gives the next rows of the list that [Reader.SnapshotCatchUp] made, after the row given, as long as they
// still exist and are not recorded in the meantime: at most limit, and not many more bytes than 4 MiB. None means that
// the list is done. A row that was made after the list, by its time and its transaction, is not the listed one, but
// uses its id again: the stream brings it, in its own order. The fields have the text form that the stream gives;
// Position is left to the caller. ErrFenced after a takeover by another.
func (s *Reader) CatchUpRows(ctx context.Context, afterRow uint64, limit int) ([]record.CatchUpRow, error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return nil, err
	}
	for from := int64(afterRow); ; from += catchUpSpan {
		rows, err := s.readPage(ctx, o, limit, s.catchUpSQL(o), catchUpParams(source, from, limit))
		var last int64
		if err == nil && len(rows) == 0 {
			err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&last) },
				s.db.SQL(o, `SELECT coalesce(max(row_number), 0) FROM {catch_up} WHERE source = $1`), source)
		}
		if err != nil {
			return nil, fmt.Errorf("read rows to catch up: %w", err)
		}
		if len(rows) > 0 || last <= from+catchUpSpan {
			return rows, nil
		}
	}
}

func catchUpParams(source int32, from int64, limit int) *db.Params {
	return new(db.Params).Int4(source).Int8(from).Int8(int64(limit)).Int8(from + catchUpSpan)
}

func (s *Reader) catchUpSQL(o *db.Table) string {
	return "SELECT c.row_number" + s.eventColumns("NULLIF(age(o.xmin) >= age(c.xmin), false)") +
		` FROM {catch_up} c JOIN {outbox} o ON o.{id} = c.event_id{collate_own}
WHERE {ours}
 AND c.source = $1 AND c.row_number > $2 AND c.row_number <= $4 AND NOT {recorded} AND NOT (age(o.xmin) < age(c.xmin)
 AND ` + s.db.MadeAfter(o, "(SELECT swept_at FROM {state} WHERE source = $1)") + `) ORDER BY c.row_number LIMIT $3`
}

// readPage runs a statement that gives a number and the columns of eventColumns, until the page is full. ErrFenced
// after a takeover by another: it may have made another list, whose numbers are others, and what it has parked is left
// out here, so that what comes behind it in its lane would be sent before it.
func (s *Reader) readPage(ctx context.Context, o *db.Table, limit int, text string,
	p *db.Params) ([]record.CatchUpRow, error) {
	page := catchUpPage{limit: limit, bytea: o.PayloadType == "bytea", extra: len(s.db.Config.Columns.Extra),
		source: s.db.EventSource()}
	err := s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		// A cursor, which ends with the transaction: the client decides by their size how many rows it wants.
		if err := db.ExecWire(ctx, tx, `DECLARE catch_up NO SCROLL CURSOR FOR `+s.db.SQL(o, text), p); err != nil {
			return err
		}
		if err := s.db.StillOwned(ctx, tx); err != nil { // after the cursor, which sees what there was when it was declared
			return err
		}
		for n := firstFetch; n > 0; n = page.nextFetch() {
			fetched, err := page.fetch(ctx, tx, n)
			if err != nil || fetched < n {
				return err
			}
		}
		return nil
	})
	return page.rows, err
}

// eventColumns are the columns of an event in the order of catchUpPage.add, with its size behind them if that is why
// payload and headers are NULL, whether the journal has its id, and whether it is as listed. One that is not mapped is
// NULL.
func (s *Reader) eventColumns(listed string) string {
	return s.columns(own(s.db.Config.Columns.Payload), own(s.db.Config.Columns.Headers)) +
		", (SELECT true FROM {journal} r WHERE r.source = $1 AND r.event_id = {oid} LIMIT 1), " + listed
}

func (s *Reader) columns(payload, headers string) string {
	c := s.db.Config.Columns
	own := func(name string) string {
		if name != "" && name == c.CreatedAt {
			return "{created}"
		}
		return own(name)
	}
	size := "NULL"
	if big := db.Larger(s.db.Config.MaxRow, payload, headers); big != "false" {
		size = "CASE WHEN " + big + " THEN " + db.Size(payload, headers) + " END"
		payload, headers = "CASE WHEN NOT "+big+" THEN "+payload+" END", "CASE WHEN NOT "+big+" THEN "+headers+" END"
	}
	text := ", " + strings.Join([]string{own(c.ID), own(c.AggregateType), own(c.AggregateID), own(c.EventType), payload,
		headers, own(c.CreatedAt)}, ", ")
	for _, name := range c.Extra {
		text += ", " + own(name)
	}
	return text + ", " + size
}

// own is a column of the outbox's row.
func own(name string) string {
	if name == "" {
		return "NULL"
	}
	return "o." + db.Quote(name)
}

// catchUpPage collects rows; each row's fields share one buffer.
type catchUpPage struct {
	limit, extra int
	bytea        bool
	source       int32 // of its events
	rows         []record.CatchUpRow
	bytes        int
}

// nextFetch is how many rows still fit, by the average size so far; 0 when the page is full.
func (p *catchUpPage) nextFetch() int {
	left := p.limit - len(p.rows)
	if p.bytes >= catchUpBytes || left <= 0 {
		return 0
	}
	average := p.bytes/len(p.rows) + 1
	return max(1, min(left, mostFetch, (catchUpBytes-p.bytes)/average))
}

func (p *catchUpPage) fetch(ctx context.Context, tx pgx.Tx, n int) (fetched int, err error) {
	rows := tx.Conn().PgConn().ExecParams(ctx, "FETCH "+strconv.Itoa(n)+" FROM catch_up", nil, nil, nil, nil)
	for rows.NextRow() {
		fetched++
		if err == nil {
			err = p.add(rows.Values())
		}
	}
	if _, closed := rows.Close(); closed != nil {
		return fetched, closed
	}
	return fetched, err
}

// add copies one row: its values are valid only until the next one is read.
func (p *catchUpPage) add(values [][]byte) error {
	number, err := strconv.ParseUint(string(values[0]), 10, 64)
	if err != nil {
		return fmt.Errorf("read row number: %w", err)
	}
	size := 0
	for _, v := range values[1:] {
		size += len(v)
	}
	buffer := make([]byte, 0, size)
	copied := func(v []byte) []byte {
		if v == nil {
			return nil
		}
		from := len(buffer)
		buffer = append(buffer, v...)
		return buffer[from:len(buffer):len(buffer)]
	}
	e := outbox.Event{
		ID: copied(values[1]), AggregateType: copied(values[2]), AggregateID: copied(values[3]), EventType: copied(values[4]),
		Headers: copied(values[6]), CreatedAt: copied(values[7]), Source: p.source,
	}
	payload := values[5]
	if p.bytea && payload != nil {
		if payload, err = decodeHex(payload); err != nil {
			return fmt.Errorf("read payload of row %d: %w", number, err)
		}
	}
	e.Payload = copied(payload)
	last := len(values) - 3
	for _, v := range values[8:last] {
		e.Extra = append(e.Extra, copied(v))
	}
	if values[last] != nil { // payload and headers are not read: there is too much of them
		if e.Oversize, err = strconv.ParseInt(string(values[last]), 10, 64); err != nil {
			return fmt.Errorf("read size of row %d: %w", number, err)
		}
	}
	p.rows = append(p.rows, record.CatchUpRow{Row: number, Event: e, Reused: values[last+1] != nil,
		Listed: values[last+2] != nil})
	p.bytes += size
	return nil
}

// decodeHex reads the hex form of a bytea in place.
func decodeHex(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, fmt.Errorf("a bytea that is not in hex form")
	}
	n, err := hex.Decode(b[2:], b[2:])
	return b[2 : 2+n], err
}
