package outboxes

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// counted is the SQL side of a slot that counts what it is told.
type counted struct {
	listed
	covered int
	sources map[int32]bool
}

func (s *counted) Of(schema, _ string) SQL { return &listOf{listed: &s.listed, schema: schema} }

func (s *counted) Cover(members []SQL) {
	s.covered += len(members)
	for _, m := range members {
		s.sources[m.(*listOf).source] = true
	}
}

// Break it catches: a start that tells the slot all numbers again with each table, so that what it does grows with the
// square of the tables. Seen to fail so.
func TestTheSlotIsToldEachNumberOnce(t *testing.T) {
	const many = 500
	slot := &counted{sources: map[int32]bool{}}
	slot.states = map[int32]*store.State{0: {Phase: store.Stream, SystemID: "1"}}
	for i := range int32(many) {
		n := store.Named{OID: uint32(i + 100), Schema: fmt.Sprintf("t%d", i), Name: "o", Published: true, Whole: true,
			Source: i + 1}
		slot.tables = append(slot.tables, n)
		slot.states[n.Source] = &store.State{Source: n.Source, Phase: store.Stream}
	}
	tables := Over(slot, outbox.Pattern{Schema: "t*", Table: "o"}, config.Postgres{}, zerolog.Nop())
	for range 3 { // sessions
		tables.Begin()
		if _, err := tables.Outbox(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := tables.State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(slot.sources) != many || slot.covered > many {
		t.Errorf("numbers told: got %d of %d outboxes, want each of %d once", slot.covered, len(slot.sources), many)
	}
	if got := len(tables.Known()); got != many {
		t.Errorf("outboxes with a number: got %d, want %d", got, many)
	}
}

// Tenants have come and gone for years. Break it catches: a start that looks for the table of each, so that a take-over
// takes ever longer; one that forgets their numbers, under which rows may still be in the stream. Seen to fail with a
// look for each.
func TestTablesThatAreGoneCostAStartNoLook(t *testing.T) {
	slot := &counted{sources: map[int32]bool{}}
	slot.states = map[int32]*store.State{0: {Phase: store.Stream, SystemID: "1"}}
	for i := range int32(300) {
		n := store.Named{OID: uint32(i + 100), Schema: fmt.Sprintf("t%d", i), Name: "o", Published: true, Whole: true,
			Source: i + 1}
		if i < 3 {
			slot.tables = append(slot.tables, n)
		} else {
			slot.past = append(slot.past, n)
		}
		slot.states[n.Source] = &store.State{Source: n.Source, Phase: store.Stream}
	}
	tables := Over(slot, outbox.Pattern{Schema: "t*", Table: "o"}, config.Postgres{}, zerolog.Nop())
	if _, err := tables.Outbox(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tables.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most := 2 * len(slot.tables); slot.looks > most {
		t.Errorf("looks at tables: got %d, want at most %d", slot.looks, most)
	}
	if got := len(tables.Known()); got != 300 || len(slot.sources) != 300 || len(tables.there()) != 3 {
		t.Errorf("got %d outboxes with a number, %d numbers told, %d tables there; want 300, 300, 3", got, len(slot.sources),
			len(tables.there()))
	}
	if !tables.Has(300) || tables.Numbered(300) != nil {
		t.Errorf("outbox 300: got known %v, there %v; want known and gone", tables.Has(300), tables.Numbered(300) != nil)
	}
}
