package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file has events encoded by package message, and waits for their schemas; nothing here keeps state.

// encode makes the delivery's message of its event. Its Reason is set if the event cannot become one.
func encode(x *message.Encoder, d *settle.Delivery) {
	d.Record.Owner, d.Record.Again, d.Record.Probe = d, d.Replay, false
	d.Created, d.Dated, d.Reason = x.Encode(&d.Event, &d.Record,
		message.Marks{Attempts: d.Attempts, Replay: d.Replay, Late: d.Late})
}

// keep makes the delivery own its bytes; see [message.Encoder.Keep]. False: they stay where they are.
func keep(x *message.Encoder, d *settle.Delivery) (kept bool) {
	return x.Keep(&d.Event, &d.Record, &d.Memory)
}

// encode makes the delivery's message of an event of the stream, or of the table.
func (x *source) encode(d *settle.Delivery, now time.Time) {
	x.router.At(now)
	encode(x.router, d)
}

// parkedEncoder makes the messages of parked events and the copies of dead letters, for the settler.
type parkedEncoder struct{ s *session }

// Encode makes the record of a parked event.
func (p parkedEncoder) Encode(d *settle.Delivery, now time.Time) {
	x := p.s.of(&d.Event).again()
	x.At(now)
	encode(x, d)
}

// Copy makes rec the copy of a dead letter, unless there is no topic for it.
func (p parkedEncoder) Copy(rec *sink.Record, d *settle.Delivery, refusal *sink.Reason) *sink.Reason {
	return p.s.of(&d.Event).again().Copy(message.Dead{
		Event: &d.Event, Record: &d.Record, Refused: d.Refused(), Reason: d.Reason, Attempts: d.Attempts, Refusal: refusal,
	}, rec)
}

// awaitSchema waits until it is known by which schema the event's message is made, or that there is none. In the
// meantime the stream is not read on, as while the window is full, and its connection goes on to answer the server.
func (s *session) awaitSchema(ctx context.Context, stop <-chan struct{}, e *outbox.Event) (stopped bool, err error) {
	return s.of(e).router.Await(ctx, stop, e, func(err error) {
		switch news := s.r.health.Registry(err); {
		case news && err != nil:
			s.r.log.Warn().Err(err).Msg("the schema registry cannot be asked; events wait for it in order")
		case news:
			s.r.log.Info().Msg("the schema registry answers again")
		}
	})
}
