package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func spooled(number int64, ends outbox.LSN) store.Spooled {
	return store.Spooled{Number: number, Era: 3, Ends: ends, Committed: time.Unix(1000+number, 0), Events: int(number),
		Data: []byte{1, 2, byte(number)}}
}

// spoolMethods is the part of everyMethod that keeps the spool.
func spoolMethods(s *store.Store) []calledMethod {
	return []calledMethod{
		{"Spool", func(ctx context.Context) error {
			return errors.Join(s.Spool(ctx, spooled(7, 100)), s.Spool(ctx, spooled(8, 0)))
		}},
		{"OpenSpool", func(ctx context.Context) error { _, err := s.OpenSpool(ctx); return err }},
		{"Spooled", func(ctx context.Context) error { _, err := s.Spooled(ctx); return err }},
		{"NextSpooled", func(ctx context.Context) error { _, _, err := s.NextSpooled(ctx, 1); return err }},
		{"DeleteSpooled", func(ctx context.Context) error { return s.DeleteSpooled(ctx, 1, 7) }},
	}
}

// Breaks caught: a part of a transaction that is kept though the stream brings all of it again; a row of a lost answer
// that fails, or is there twice; rows of another source read or deleted.
func TestSpoolKeepsWholeTransactionsInOrder(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 1)
	empty, err := s.OpenSpool(t.Context())
	must(t, "open", err)
	if !empty.Empty() {
		t.Errorf("a spool that was never used: got %+v", empty)
	}
	for _, r := range []store.Spooled{spooled(1, 100), spooled(2, 0), spooled(3, 200), spooled(4, 0), spooled(5, 0)} {
		must(t, "spool", s.Spool(t.Context(), r))
		must(t, "spool once more", s.Spool(t.Context(), r))
	}
	pg.Exec(t, `INSERT INTO cdc_relay_spool SELECT source + 1, number, era, ends, committed_at, events, data
FROM cdc_relay_spool`)
	st, err := s.OpenSpool(t.Context())
	must(t, "open", err)
	want := store.SpoolState{First: 1, Last: 3, Era: 3, Ends: 200, Events: 6, Oldest: st.Oldest}
	if st != want || !st.Oldest.Equal(time.Unix(1001, 0)) {
		t.Errorf("after a crash within a transaction: got %+v, want %+v", st, want)
	}
	must(t, "delete", s.DeleteSpooled(t.Context(), 1, 1))
	if now, err := s.Spooled(t.Context()); err != nil || now.First != 2 || now.Events != 5 {
		t.Errorf("after the first row was sent: got %+v, %v, want it to begin at 2", now, err)
	}
	for after, want := range map[int64]int64{0: 2, 2: 3, 3: 0} {
		r, ok, err := s.NextSpooled(t.Context(), after)
		must(t, "read", err)
		if ok != (want != 0) || r.Number != want {
			t.Errorf("behind %d: got row %d, want %d", after, r.Number, want)
		}
		if w := spooled(want, r.Ends); ok && (r.Events != w.Events || string(r.Data) != string(w.Data) || r.Era != w.Era) {
			t.Errorf("row %d: got %+v, want %+v", want, r, w)
		}
	}
	pg.Exec(t, `INSERT INTO cdc_relay_spool SELECT source, i, 3, 0, now(), 1, ''
		FROM cdc_relay_state, generate_series(4, 1003) i`)
	if st, err := s.OpenSpool(t.Context()); err != nil || st.Last != 3 {
		t.Errorf("after a crash within a large transaction: got %+v, %v, want nothing behind row 3", st, err)
	}
	must(t, "delete", s.DeleteSpooled(t.Context(), 2, 3))
	if n := pg.Query(t, `SELECT count(*) FROM cdc_relay_spool`); n != "5" {
		t.Errorf("got %s rows left, want the 5 of the other source", n)
	}
}

// sent prepares the last rows of a spool to be read and deleted. The rows before them are deleted, and a transaction
// that began earlier keeps them in table and index.
func (w *weighed) sent(t *testing.T, rows int) func(s *store.Store) error {
	t.Helper()
	deleted := w.rows / 10
	w.exec(t, fmt.Sprintf(`INSERT INTO cdc_relay_spool SELECT source, i, 3, i, now(), 100, 'x'
FROM cdc_relay_state, generate_series(1, %d) i`, deleted+rows))
	older := w.pg.Connect(t)
	_, err := older.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT")
	must(t, "begin an older transaction", err)
	w.exec(t, fmt.Sprintf("DELETE FROM cdc_relay_spool WHERE number <= %d", deleted))
	return func(s *store.Store) error {
		_, err := s.State(t.Context()) // reads whose rows they are
		first, last := int64(deleted+1), int64(deleted+rows)
		for after := first - 1; err == nil && after < last; after++ {
			var r store.Spooled
			if r, _, err = s.NextSpooled(t.Context(), after); err == nil && r.Number != after+1 {
				err = fmt.Errorf("behind row %d: got row %d", after, r.Number)
			}
		}
		return errors.Join(err, s.DeleteSpooled(t.Context(), first, last), older.Close(t.Context()))
	}
}
