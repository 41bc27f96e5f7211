package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a filter that takes more or less than it names; one that chooses nothing because it is misread; an
// aggregate without a type that cannot be named. Seen to fail with the index of a position not looked at, with rows of
// the table taken for events of the stream, and with the type of an aggregate left out.
func TestDeadLettersAndParkedEventsAreChosenByAggregateAndPosition(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	of := func(n int, kind, id string, at outbox.Position) store.Dead {
		d := deadAt(n, "k")
		d.Event.AggregateType, d.Event.AggregateID, d.Event.Position = []byte(kind), []byte(id), at
		if kind == "" {
			d.Event.AggregateType = nil
		}
		return d
	}
	const lsn = 0xA_0000_000B
	bury(t, s, of(1, "order", "7", outbox.Position{Order: lsn, Index: 1}),
		of(2, "order", "7/8", outbox.Position{Order: lsn, Index: 2}),
		of(3, "user", "7", outbox.Position{Table: true, Epoch: 2, Order: lsn}),
		of(4, "", "7", outbox.Position{Table: true, Epoch: 3, Order: lsn}))
	parked := parkedAt(5, "k", 0)
	parked.Event.AggregateType, parked.Event.AggregateID = []byte("order"), []byte("7")
	parked.Event.Position = outbox.Position{Order: lsn, Index: 1}
	parkAll(t, s, []store.Parked{parked})
	for _, row := range []struct {
		filter store.Filter
		want   string // the last digits of the ids
		parked int
	}{
		{store.Filter{Aggregate: "order/7"}, "1", 1},
		{store.Filter{Aggregate: "order/7/8"}, "2", 0},
		{store.Filter{Aggregate: "user/7"}, "3", 0},
		{store.Filter{Aggregate: "/7"}, "4", 0},
		{store.Filter{Position: "A/B"}, "2 1", 1},
		{store.Filter{Position: "A/B/2"}, "2", 0},
		{store.Filter{Position: "table/2/42949672971"}, "3", 0},
		{store.Filter{Position: "A/C"}, "", 0},
	} {
		page, err := s.DeadLetters(t.Context(), row.filter, store.DeadOpen, "", 10)
		must(t, "list", err)
		var ids []string
		for _, d := range page.Items {
			ids = append(ids, d.ID[len(d.ID)-1:])
		}
		keys, err := s.ParkedKeys(t.Context(), row.filter, "", 10)
		must(t, "list what is parked", err)
		if got := strings.Join(ids, " "); got != row.want || len(keys.Items) != row.parked {
			t.Errorf("%+v: got dead letters %q and %d parked keys, want %q and %d", row.filter, got, len(keys.Items), row.want,
				row.parked)
		}
	}
	for _, bad := range []store.Filter{{Aggregate: "order"}, {Aggregate: "order/"}, {Position: "x"}, {Position: "A/B/x"},
		{Position: "A/B/4294967296"}, {Position: "table/1"}, {Position: "table/1/x"}, {Position: "A/B/1/2"},
		{Aggregate: "a\x00/b"}} {
		if _, err := s.DeadLetters(t.Context(), bad, store.DeadOpen, "", 10); !errors.Is(err, store.ErrFilter) {
			t.Errorf("%+v: got %v, want it refused", bad, err)
		}
	}
}
