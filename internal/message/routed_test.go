package message

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/memory"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// routed is an encoder made from the default configuration as changed, with a count of shadowed headers.
type routed struct {
	*Encoder
	columns  outbox.Columns
	shadowed int
}

func newRouted(t testing.TB, change func(*config.Config)) *routed {
	t.Helper()
	c := config.Default()
	c.Outbox.Columns.Headers = "headers"
	if change != nil {
		change(&c)
	}
	r := &routed{columns: Columns(c)}
	var err error
	if r.Encoder, err = New(c, r.columns, "jsonb", Hooks{Shadowed: func() { r.shadowed++ }}); err != nil {
		t.Fatalf("New: %v", err)
	}
	r.Begin("sys/1/7", 3)
	r.At(time.UnixMilli(1_700_000_000_123))
	return r
}

// carried is an event with its message, as a relay has it in flight.
type carried struct {
	event    outbox.Event
	record   sink.Record
	attempts int
	dated    bool
	late     bool
	replay   bool
	created  int64
	memory   memory.Memory
}

func (r *routed) route(d *carried) (reason *sink.Reason) {
	d.created, d.dated, reason = r.Encode(&d.event, &d.record, Marks{d.attempts, d.replay, d.late})
	return reason
}

func (r *routed) keep(d *carried) { r.Keep(&d.event, &d.record, &d.memory) }

func text(s string) []byte { return []byte(s) }

func anEvent() outbox.Event {
	return outbox.Event{
		ID: text("e1"), AggregateType: text("order"), AggregateID: text("a1"), EventType: text("made"),
		Payload:   text(`{"n": 1}`),
		CreatedAt: text("2026-11-21 16:36:32.5+00"), Position: outbox.Position{Epoch: 3, Order: 0x16B374D848, Index: 4},
	}
}

// headerList is "key=value" per header, in order.
func headerList(h outbox.Headers) (list []string) {
	for k, v := range h.All() {
		list = append(list, k+"="+string(v))
	}
	return list
}
