package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

// Examine connects and looks for the stream, which is the only one that there is, or empty. The text says what answered
// and whether the stream is missing; nothing that could be risky is asked for. The error is why the server cannot
// be used.
func (d *StreamDriver) Examine(ctx context.Context, stream string) (text string, risky bool, err error) {
	c, err := d.dial(ctx)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = c.Close() }()
	text = fmt.Sprintf("%s %s at %s", c.About["product"], c.About["version"], c.RemoteAddr())
	if stream == "" {
		return text, false, nil
	}
	switch err := c.Stream(stream); {
	case err == nil:
		return text, false, nil
	case errors.Is(err, wire.NoStream) && d.config.MissingStreams.Create:
		return text + "; to be created: " + stream, false, nil
	case errors.Is(err, wire.NoStream):
		return "", false, fmt.Errorf("stream %s: %w", stream, d.config.explained(err, stream))
	case !wire.IsAnswer(err):
		return "", false, err
	default:
		return "", false, fmt.Errorf("stream %s: %w", stream, d.config.explained(err, stream))
	}
}
