package rabbitmqstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/sink/rabbitmqstream/internal/wire"
)

// Examine connects and looks for the streams. The text says what answered and which streams are missing; the error is
// why the server cannot be used.
func (d *Driver) Examine(ctx context.Context, streams []string) (text string, err error) {
	c, err := d.dial(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	text = fmt.Sprintf("%s %s at %s", c.About["product"], c.About["version"], c.RemoteAddr())
	var missing []string
	for _, stream := range streams {
		switch err := c.Stream(stream); {
		case errors.Is(err, wire.NoStream):
			missing = append(missing, stream)
		case err != nil && !wire.IsAnswer(err):
			return "", err
		case err != nil:
			return "", fmt.Errorf("stream %s: %w", stream, err)
		}
	}
	switch {
	case len(missing) == 0:
		return text, nil
	case d.config.NewStreams.Create:
		return text + "; to be created: " + strings.Join(missing, ", "), nil
	}
	return "", fmt.Errorf("stream %s: %w", missing[0], explained(wire.NoStream, missing[0]))
}
