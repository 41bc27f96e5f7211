package simulator

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/run/spool"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// spooledRow is a row of the spool, with what tells its events.
type spooledRow struct {
	store.Spooled
	rows []spooledEvent
}

type spooledEvent struct {
	oid uint32 // of its table
	id  string
}

func inOrder(a, b spooledRow) int { return cmp.Compare(a.Number, b.Number) }

// OpenSpool deletes what is behind the last whole transaction.
func (t *tables) OpenSpool(ctx context.Context) (st store.SpoolState, err error) {
	err = t.fenced(ctx, "open spool", func(db *database) error {
		rows := db.spool[t.key()]
		for len(rows) > 0 && rows[len(rows)-1].Ends == 0 && t.w.mutant != halfKept {
			rows = rows[:len(rows)-1]
		}
		db.spool[t.key()] = rows
		st = stateOfSpool(rows)
		t.durable()
		return nil
	})
	return st, err
}

// Spooled tells what is spooled.
func (t *tables) Spooled(ctx context.Context) (st store.SpoolState, err error) {
	err = t.do(ctx, "spooled", func(db *database) error {
		t.state(db)
		st = stateOfSpool(db.spool[t.key()])
		return nil
	})
	return st, err
}

func stateOfSpool(rows []spooledRow) (st store.SpoolState) {
	if len(rows) == 0 {
		return st
	}
	first, last := rows[0], rows[len(rows)-1]
	st = store.SpoolState{First: first.Number, Last: last.Number, Era: last.Era, Ends: last.Ends, Oldest: first.Committed}
	for _, r := range rows {
		st.Events += int64(r.Events)
	}
	return st
}

// Spool stores a row.
func (t *tables) Spool(ctx context.Context, r store.Spooled) error {
	effect := func(db *database) error {
		rows := db.spool[t.key()]
		if i := slices.IndexFunc(rows, func(was spooledRow) bool { return was.Number == r.Number }); i >= 0 {
			if string(rows[i].Data) != string(r.Data) {
				t.w.violate("p%d takes row %d of the spool for stored, and it is another relay's", t.p.number, r.Number)
			}
		} else {
			r.Data = slices.Clone(r.Data)
			db.spool[t.key()] = append(rows, spooledRow{r, eventsIn(r.Data)})
			slices.SortFunc(db.spool[t.key()], inOrder)
			t.w.counts.Spooled += r.Events
		}
		t.durable()
		return nil
	}
	if t.w.mutant == spoolUnfenced {
		return t.do(ctx, "spool", effect)
	}
	return t.fenced(ctx, "spool", effect)
}

// eventsIn are those of the rows in the data, whose ids are in the second column.
func eventsIn(data []byte) (rows []spooledEvent) {
	messages, err := spool.Unpack(data)
	if err != nil {
		panic(err)
	}
	const first = 1 + 4 + 1 + 2 // type, table, which row, columns
	for _, m := range messages {
		if m[0] == 'I' {
			at := first + 1 + 4 + int(binary.BigEndian.Uint32(m[first+1:])) + 1
			n := int(binary.BigEndian.Uint32(m[at:]))
			rows = append(rows, spooledEvent{binary.BigEndian.Uint32(m[1:]), string(m[at+4 : at+4+n])})
		}
	}
	return rows
}

// NextSpooled is the first row behind the number.
func (t *tables) NextSpooled(ctx context.Context, after int64) (r store.Spooled, ok bool, err error) {
	err = t.reads(ctx, "next spooled", func(db *database) error {
		r, ok = store.Spooled{}, false
		for _, row := range db.spool[t.key()] {
			if row.Number > after {
				r, ok = row.Spooled, true
				break
			}
		}
		return nil
	})
	return r, ok, err
}

// DeleteSpooled deletes the rows of these numbers.
func (t *tables) DeleteSpooled(ctx context.Context, first, last int64) error {
	return t.fenced(ctx, "delete spooled", func(db *database) error {
		key, was := t.key(), db.spool[t.key()]
		var gone, left []spooledRow
		for _, r := range was {
			if r.Number >= first && r.Number <= last {
				gone = append(gone, r)
			} else {
				left = append(left, r)
			}
		}
		t.w.judgeSpoolDeleted(t, gone)
		db.spool[key] = left
		t.relaxed(func() {
			db.spool[key] = append(gone, db.spool[key]...)
			slices.SortFunc(db.spool[key], inOrder)
		})
		return nil
	})
}

// judgeSpoolDeleted fails if an event goes that has no outcome (J4).
func (w *world) judgeSpoolDeleted(t *tables, rows []spooledRow) {
	for _, row := range rows {
		for _, e := range row.rows {
			if r := w.server.rowOfOID(e.oid, e.id); r != nil && !w.server.isTerminal(r) {
				w.violate("p%d deletes %s from the spool, and it is neither journaled nor parked nor dead", t.p.number, r.name())
			}
		}
	}
}

// isSpooled reports whether the row's event is in the spool, with the end of its transaction.
func (s *server) isSpooled(r *row) bool {
	rows := s.db.spool[s.spoolKey(r)]
	for i := range rows {
		if slices.Contains(rows[i].rows, spooledEvent{r.table.oid, r.id}) {
			return slices.ContainsFunc(rows[i:], func(row spooledRow) bool { return row.Ends != 0 })
		}
	}
	return false
}
