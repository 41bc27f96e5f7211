package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// This file is where the relay waits for a schema registry. Who dispatches waits, and nobody else.

// awaitSchema waits until it is known by which schema the event's message is made, or that there is none. Meanwhile the
// stream is not read on, as while the window is full, and its connection goes on to answer the server.
func (s *session) awaitSchema(ctx context.Context, stop <-chan struct{}, e *outbox.Event) (stopped bool, err error) {
	return s.router.Await(ctx, stop, e, func(err error) {
		switch news := s.r.health.Registry(err); {
		case news && err != nil:
			s.r.log.Warn().Err(err).Msg("the schema registry cannot be asked; events wait for it in order")
		case news:
			s.r.log.Info().Msg("the schema registry answers again")
		}
	})
}
