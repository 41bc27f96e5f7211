package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Handler applies the effect of one event in tx, which it must not end. If it returns nil the effect is committed
// together with the event's id, else neither is. It may be called again after it returned nil, if the commit failed.
type Handler func(ctx context.Context, tx pgx.Tx, m *Message) error

// batchHandler has the effects of several events of one type.
type batchHandler func(ctx context.Context, tx pgx.Tx, ms []*Message) error

type registered struct {
	one  Handler
	many batchHandler

	solitary atomic.Bool // it changes settings: its events are alone in their transactions
}

// On registers the handler of an event type. The payload is decoded into a T; []byte and json.RawMessage get the raw
// payload. Call On before Run.
func On[T any](c *Consumer, eventType string, handle func(context.Context, pgx.Tx, Event[T]) error) {
	c.register(eventType, handle == nil, &registered{one: func(ctx context.Context, tx pgx.Tx, m *Message) error {
		e, err := decode[T](c, m)
		if err != nil {
			return err
		}
		return handle(ctx, tx, e)
	}})
}

// OnBatch registers a handler for all waiting events of a type at once, of many keys, in order within each key. If it
// returns an error the batch is rolled back and its events are handled one at a time.
func OnBatch[T any](c *Consumer, eventType string, handle func(context.Context, pgx.Tx, []Event[T]) error) {
	c.batches = true
	c.register(eventType, handle == nil, &registered{many: func(ctx context.Context, tx pgx.Tx, ms []*Message) error {
		events := make([]Event[T], 0, len(ms))
		for _, m := range ms {
			e, err := decode[T](c, m)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		return handle(ctx, tx, events)
	}})
}

func (c *Consumer) register(eventType string, none bool, r *registered) {
	switch {
	case c.ran.Load():
		c.config.Log.Error("inbox: a handler is registered after Run, and is not called: register it before",
			"consumer", c.config.Name, "type", eventType)
		return
	case eventType == "":
		c.problems = append(c.problems, errors.New("inbox: a handler for an empty type: name the events' type"))
	case none:
		c.problems = append(c.problems, fmt.Errorf("inbox: the handler for type %q is nil", eventType))
	}
	if _, there := c.handlers[eventType]; there {
		c.problems = append(c.problems, fmt.Errorf("inbox: two handlers for type %q", eventType))
	}
	c.handlers[eventType] = r
}

// Use wraps all handlers, for example with a schema check or a circuit breaker. The first added is outermost. Around a
// handler of OnBatch each event has its own wrappers, nested in each other. A wrapper that returns nil without calling
// next has handled its event, and the batch continues without it. It cannot turn the error of a batch of several events
// into nil: these are then handled one at a time.
func (c *Consumer) Use(middleware func(Handler) Handler) {
	switch {
	case c.ran.Load():
		c.config.Log.Error("inbox: a wrapper is added after Run, and has no effect: add it before",
			"consumer", c.config.Name)
		return
	case middleware == nil:
		c.problems = append(c.problems, errors.New("inbox: a wrapper is nil: pass a function to Use"))
		return
	}
	c.middleware = append(c.middleware, middleware)
}

// wrap is done once, when everything is registered.
func (c *Consumer) wrap() {
	for _, r := range c.handlers {
		if r.many != nil && len(c.middleware) > 0 {
			r.many = wrapBatch(r.many, c.middleware)
			continue
		}
		if r.one != nil {
			r.one = around(r.one, c.middleware)
		}
	}
	c.middleware = nil
}

func around(h Handler, middleware []func(Handler) Handler) Handler {
	for _, wrap := range slices.Backward(middleware) {
		h = wrap(h)
	}
	return h
}

// wrapBatch calls a batch's handler within the wrappers of each of its events.
func wrapBatch(many batchHandler, middleware []func(Handler) Handler) batchHandler {
	return func(ctx context.Context, tx pgx.Tx, ms []*Message) error {
		var failed error
		var from func(ctx context.Context, tx pgx.Tx, n int, kept []*Message) error
		from = func(ctx context.Context, tx pgx.Tx, n int, kept []*Message) error {
			if n == len(ms) {
				if len(kept) == 0 {
					return nil
				}
				err := many(ctx, tx, kept)
				failed = errors.Join(failed, err)
				return err
			}
			passed := false
			err := around(func(ctx context.Context, tx pgx.Tx, m *Message) error {
				passed = true
				return from(ctx, tx, n+1, append(kept[:len(kept):len(kept)], m))
			}, middleware)(ctx, tx, ms[n])
			if err == nil && !passed {
				return from(ctx, tx, n+1, kept)
			}
			if len(ms) > 1 {
				failed = errors.Join(failed, err)
			}
			return err
		}
		err := from(ctx, tx, 0, nil)
		if err == nil && len(ms) > 1 {
			return failed
		}
		return err
	}
}

func decode[T any](c *Consumer, m *Message) (Event[T], error) {
	e := Event[T]{Message: m}
	switch into := any(&e.Payload).(type) {
	case *[]byte:
		*into = m.Payload
		return e, nil
	case *json.RawMessage:
		*into = m.Payload
		return e, nil
	}
	if m.Payload == nil {
		return e, nil
	}
	var err error
	if c.config.Decode != nil {
		err = c.config.Decode(m, &e.Payload)
	} else {
		err = json.Unmarshal(m.Payload, &e.Payload)
	}
	if err != nil {
		return e, Permanent(fmt.Errorf("decode the payload: %w", err))
	}
	return e, nil
}
