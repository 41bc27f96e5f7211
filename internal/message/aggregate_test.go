package message

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// composedFrom is an encoder for a table whose aggregate is composed of the columns tenant and order_id, which
// the decoder puts into e.Extra[1] and [0].
func composedFrom(t testing.TB, change func(*config.Config)) *routed {
	t.Helper()
	r := newRouted(t, func(c *config.Config) {
		c.Outbox.Columns.AggregateType, c.Outbox.Columns.AggregateID = "{event_type}s", "{tenant}:{order_id}"
		if change != nil {
			change(c)
		}
	})
	if want := []string{"order_id", "tenant"}; !slices.Equal(r.columns.Extra, want) ||
		r.columns.AggregateType+r.columns.AggregateID != "" {
		t.Fatalf("got columns %+v, want %q and none of the aggregate", r.columns, want)
	}
	return r
}

// Breaks it catches: a composed aggregate that is not in the key, the topic, the headers or the event, from which
// dead letters and parked events are written; an empty one that becomes a lane of all such events; one that is
// composed again of a row that has it already. Seen to fail with each of the three.
func TestAggregatesAreComposedOfColumns(t *testing.T) {
	for _, c := range []struct {
		name          string
		order, tenant []byte
		stored        []byte // as a parked event has it
		wantKey       string
		wantID        []byte
	}{
		{name: "both", order: text("17"), tenant: text("acme"), wantKey: "acme:17", wantID: text("acme:17")},
		{name: "one is NULL", order: text("17"), wantKey: ":17", wantID: text(":17")},
		{name: "nothing", order: text("")},
		{name: "parked", order: text("17"), tenant: text("acme"), stored: text("old"), wantKey: "old", wantID: text("old")},
	} {
		r := composedFrom(t, func(c *config.Config) { c.Message.Headers = map[string]string{"aggregate_id": "x-ref"} })
		d := &carried{event: anEvent()}
		d.event.AggregateType, d.event.AggregateID = nil, c.stored
		d.event.Extra = [][]byte{c.order, c.tenant}
		if reason := r.route(d); reason != nil {
			t.Fatalf("%s: %v", c.name, reason)
		}
		kind, _ := d.record.Headers.Get("aggregate_type")
		ref, has := d.record.Headers.Get("x-ref")
		if d.record.Topic != "outbox.event.mades" || string(kind) != "mades" || string(d.event.AggregateType) != "mades" {
			t.Errorf("%s: got topic %s, header %s, type %s; want mades", c.name, d.record.Topic, kind, d.event.AggregateType)
		}
		if string(d.record.Key) != c.wantKey || !bytes.Equal(d.event.AggregateID, c.wantID) ||
			string(ref) != string(c.wantID) || has != (c.wantID != nil) {
			t.Errorf("%s: got key %q, aggregate %q, header %q; want %q", c.name, d.record.Key, d.event.AggregateID, ref,
				c.wantID)
		}
		if c.wantKey == "" && d.record.Key != nil {
			t.Errorf("%s: got an empty key, want none", c.name)
		}
		r.keep(d)
		r.route(&carried{event: anEvent()}) // writes over the arena
		if string(d.record.Key) != c.wantKey || !bytes.Equal(d.event.AggregateID, c.wantID) {
			t.Errorf("%s: kept as key %q, aggregate %q; want %q", c.name, d.record.Key, d.event.AggregateID, c.wantID)
		}
	}
}

// A table may have no column for the aggregate at all. Breaks it catches: a template that asks for a column of that
// name; a key. Seen to fail with the names looked for among the columns.
func TestEventsWithoutAnAggregateHaveNoKey(t *testing.T) {
	r := newRouted(t, func(c *config.Config) {
		c.Outbox.Columns.AggregateType, c.Outbox.Columns.AggregateID, c.Message.Topic = "", "", "t.{event_type}"
	})
	if len(r.columns.Extra) > 0 {
		t.Fatalf("further columns: got %q, want none", r.columns.Extra)
	}
	d := &carried{event: outbox.Event{ID: text("e1"), EventType: text("made"), Payload: text("{}")}}
	if reason := r.route(d); reason != nil || d.record.Topic != "t.made" || d.record.Key != nil {
		t.Errorf("got topic %s, key %q, reason %v; want t.made and no key", d.record.Topic, d.record.Key, reason)
	}
	if _, has := d.record.Headers.Get("aggregate_type"); has {
		t.Error("there is a header aggregate_type")
	}
}

// Seen to fail with memory of its own for what is composed.
func TestComposingAllocatesNothing(t *testing.T) {
	r := composedFrom(t, nil)
	d := &carried{}
	e := anEvent()
	e.AggregateType, e.AggregateID = nil, nil
	e.Extra = [][]byte{text("17"), text("acme")}
	allocated := testing.AllocsPerRun(200, func() {
		d.event = e
		r.route(d)
		r.keep(d)
	})
	if allocated > 0 {
		t.Errorf("allocations per event: got %v, want 0", allocated)
	}
}
