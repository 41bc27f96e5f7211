package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Handler has the effect of one event, in tx. It must not end tx: with nil the effect is committed together with the
// event's id, with an error neither is. It may be called again after it has returned nil: when the commit failed.
type Handler func(ctx context.Context, tx pgx.Tx, m *Message) error

// batchHandler has the effects of several events of one type.
type batchHandler func(ctx context.Context, tx pgx.Tx, ms []*Message) error

type registered struct {
	one  Handler
	many batchHandler

	solitary atomic.Bool // it changes settings: its events are alone in their transactions
}

// On registers the handler of a type of events. The payload is decoded into a T; with []byte or json.RawMessage it is
// handed over as it came. Register before Run.
func On[T any](c *Consumer, eventType string, handle func(context.Context, pgx.Tx, Event[T]) error) {
	c.register(eventType, handle == nil, &registered{one: func(ctx context.Context, tx pgx.Tx, m *Message) error {
		e, err := decode[T](c, m)
		if err != nil {
			return err
		}
		return handle(ctx, tx, e)
	}})
}

// OnBatch registers a handler that takes several events of a type at once: all that wait, of many keys, each key's in
// order. An error rolls all back, and then they come one at a time.
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

// Use wraps the handlers of On: a schema check, a circuit breaker. What was added first is outermost. Handlers of
// OnBatch are not wrapped.
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
		for i := len(c.middleware) - 1; i >= 0 && r.one != nil; i-- {
			r.one = c.middleware[i](r.one)
		}
	}
	c.middleware = nil
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
