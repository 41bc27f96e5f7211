// Package middleware shows what can be put around the handlers of an inbox: a JSON Schema for each type of events, and
// a circuit breaker around the calls that a handler makes. It is to be copied.
package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/sony/gobreaker/v2"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Schemas holds payloads to the schema of their type: what does not fit is a dead letter at once, which a replay brings
// back when the schema is repaired. A type without a schema passes. Use: c.Use(middleware.Schemas(…)).
func Schemas(schemas map[string]*jsonschema.Schema) func(inbox.Handler) inbox.Handler {
	return func(next inbox.Handler) inbox.Handler {
		return func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
			schema, known := schemas[m.Type]
			if !known {
				return next(ctx, tx, m)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Payload))
			if err == nil {
				err = schema.Validate(value)
			}
			if err != nil {
				return inbox.Permanent(fmt.Errorf("the payload does not fit the schema of %s: %w", m.Type, err))
			}
			return next(ctx, tx, m)
		}
	}
}

// Through makes a handler's call to another service through a breaker. While that is open no one is called, and the
// event waits without an attempt: the service is away, and the event has done nothing wrong. Let it be a call that
// reads: an effect outside the database is not fenced by the event's row.
func Through[T any](b *gobreaker.CircuitBreaker[T], call func() (T, error)) (T, error) {
	got, err := b.Execute(call)
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return got, inbox.Outage(err)
	}
	return got, err
}
