package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows that were read from the table wait for their broker, and the stream brings an event with the id of one that was
// committed then: it may be the row that was read, written again, or another event. Breaks caught: such an event
// taken for the row, and never sent or parked, without a word.
func TestAnEventCommittedWhileARowOfItsIDWaitedIsUnsure(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `UPDATE cdc_relay_state SET swept_at = now() - interval '30 minutes'`)
	row := outbox.Position{Table: true, Order: 1}
	batch := published(2, uuid)
	batch[0].Mark, batch[1].Mark = row.RowMark(false, false), row.RowMark(true, false)
	must(t, "settle", s.Settle(t.Context(), batch, nil))
	late := parkedAt(20, "k", 0)
	late.Event.Position, late.Late = at(20, 0), true
	parkAll(t, s, []store.Parked{late})
	const before, between, after = -time.Hour, -10 * time.Minute, -time.Microsecond
	for _, c := range []struct {
		what      string
		n         int
		committed time.Duration
		want      store.Recognition
	}{
		{"the row, or what it was listed as", 0, before, store.Recorded}, {"between", 0, between, store.Unsure},
		{"after it was journaled", 0, after, store.Reused}, {"a row as it was listed", 1, between, store.Reused},
		{"a late row", 20, before, store.Recorded}, {"while a late row waited", 20, between, store.Unsure},
		{"after a late row was parked", 20, after, store.Reused},
	} {
		got, err := s.Recognize(t.Context(), []store.Sighting{sighting(t, pg, c.n, at(99, 0), c.committed)})
		if err != nil || !slices.Equal(got, []store.Recognition{c.want}) {
			t.Errorf("%s: got %v, %v, want %v", c.what, got, err, c.want)
		}
	}
	e := parkedAt(0, "k", 0)
	e.Event.Position, e.Committed = at(99, 0), sighting(t, pg, 0, at(99, 0), between).Committed
	if parked, err := s.Park(t.Context(), []store.Parked{e}); err != nil || parked != 1 {
		t.Errorf("park what is unsure: got %d, %v, want it parked", parked, err)
	}
	e = parkedAt(20, "k", 0)
	e.Event.Position, e.Committed = at(99, 0), sighting(t, pg, 20, at(99, 0), between).Committed
	if _, err := s.Park(t.Context(), []store.Parked{e}); err == nil {
		t.Error("park what is unsure, and whose id is parked: got no error, want that it is taken")
	}
}

// A catch-up's rows wait for their broker, the application uses their ids again, and the slot is lost once more: only
// the table has the new rows. Break caught: a list that leaves them out without a word.
func TestRowsMadeWhileRowsOfTheirIDsWaitedAreNamed(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 3)
	pg.Exec(t, `UPDATE outbox_events SET created_at = now() - interval '1 hour';
UPDATE outbox_events SET created_at = now() - interval '10 minutes' WHERE id = '`+uuid(1)+`'`)
	batch := published(3, uuid)
	for i := range batch {
		batch[i].Mark = outbox.Position{Table: true, Order: uint64(i + 1)}.RowMark(true, false)
	}
	must(t, "settle", s.Settle(t.Context(), batch, nil))
	for _, c := range []struct {
		swept string
		want  []store.Aside
	}{
		{"now() - interval '30 minutes'", []store.Aside{{Topic: batch[1].Topic, ID: uuid(1)}}}, {"now()", nil}, {"NULL", nil},
	} {
		pg.Exec(t, `UPDATE cdc_relay_state SET swept_at = `+c.swept)
		left, err := s.ReusedAside(t.Context(), 100)
		if err != nil || !slices.Equal(left, c.want) {
			t.Errorf("listed at %s: got %v, %v, want %v", c.swept, left, err, c.want)
		}
	}
}
