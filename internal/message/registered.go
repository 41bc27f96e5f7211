package message

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// schemaPause is how long an event rests whose subject has no schema, awayPause one that came from the table while
	// the registry could not be asked.
	schemaPause = 30 * time.Second
	awayPause   = 5 * time.Second
)

// Registry makes values in the formats that need a schema registry. One goroutine calls it; Close may come from
// another.
type Registry interface {
	// Has reports whether Append for the subject can do without asking the registry.
	Has(subject []byte) bool
	// Await asks for the subject's schema until it is known or the registry has answered that there is none. It returns
	// early when stop is closed or the context ends. Told gets why the registry cannot be asked, and nil once it answers.
	Await(ctx context.Context, stop <-chan struct{}, subject string, told func(error)) (stopped bool, err error)
	// Append appends the payload, encoded by the subject's schema; record names one of several messages in it, or is
	// empty. It asks nothing. The error wraps [schemas.ErrUnfit] or [schemas.ErrNoSchema], or says why the registry could
	// not be asked yet.
	Append(dst, subject, record, payload []byte) ([]byte, error)
	// Close ends the questions under way.
	Close()
}

// registered is shared by the formats that need a registry.
type registered struct {
	on              bool
	subject, record template
	scratch         [2][]byte // of both
}

func newRegistered(c config.Config, cols outbox.Columns) (r registered, err error) {
	if !c.Message.NeedsRegistry() {
		return r, nil
	}
	r.on = true
	if r.subject, err = compile(c.Registry.Subject, cols, copyField); err != nil {
		return r, fmt.Errorf("registry.subject: %w", err)
	}
	if r.record, err = compile(c.Registry.Record, cols, namedField); err != nil {
		return r, fmt.Errorf("registry.record: %w", err)
	}
	return r, nil
}

// Await returns when Encode can make the event's message without asking the registry first: it is asked now, for as
// long as it takes. Told gets why it cannot be asked, and nil when it has answered; see [Registry].
func (x *Encoder) Await(ctx context.Context, stop <-chan struct{}, e *outbox.Event, told func(error)) (
	stopped bool, err error,
) {
	r := &x.registered
	if !r.on || e.Payload == nil || !x.needsSchema(e) {
		return false, nil
	}
	return x.hooks.Schemas.Await(ctx, stop, string(r.scratch[0]), told)
}

// needsSchema reports whether the event's subject, which it renders, is still to be asked for. An event without a
// topic, or one that panics, needs none: Encode tells what is wrong with it.
func (x *Encoder) needsSchema(e *outbox.Event) (needs bool) {
	defer func() {
		if recover() != nil {
			needs = false
		}
	}()
	r := &x.registered
	x.arena.begin()
	x.compose(e)
	topic, reason := x.renderTopic(e)
	if reason != nil {
		return false
	}
	r.scratch[0] = renderWith(r.scratch[0][:0], r.subject, e, topic)
	return !x.hooks.Schemas.Has(r.scratch[0])
}

// registeredValue makes a value by its subject's schema. What cannot be made yet is not dead: its reason is doubtful.
func (x *Encoder) registeredValue(e *outbox.Event, topic string) ([]byte, *sink.Reason) {
	r := &x.registered
	if e.Payload == nil || x.hooks.Schemas == nil {
		return nil, nil
	}
	r.scratch[0] = renderWith(r.scratch[0][:0], r.subject, e, topic)
	r.scratch[1] = x.render(r.scratch[1][:0], r.record, e)
	var err error
	value := x.arena.placeUpTo(len(e.Payload)+arenaSpare, func(b []byte) []byte {
		b, err = x.hooks.Schemas.Append(b, r.scratch[0], r.scratch[1], e.Payload)
		return b
	})
	if err == nil {
		return value, nil
	}
	if errors.Is(err, schemas.ErrUnfit) {
		return nil, permanent("INVALID_PAYLOAD", err.Error())
	}
	reason := &sink.Reason{Class: outbox.Transient, Doubtful: true, Text: err.Error(),
		Code: "REGISTRY_AWAY", Pause: awayPause}
	if errors.Is(err, schemas.ErrNoSchema) {
		reason.Code, reason.Pause = "NO_SCHEMA", schemaPause
	}
	return nil, reason
}
