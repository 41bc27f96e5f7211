package brokers

import (
	"errors"
	"fmt"
	"io"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/registry"
)

// Relay makes the relay that a configuration describes, with the driver of its sink and the registry of its format.
// Both log to log; the sink stdout prints to out. It returns [config.Problems] for an invalid configuration.
func Relay(cfg config.Config, log zerolog.Logger, out io.Writer, opts ...relay.Option) (*relay.Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	driver, err := New(cfg, log, out)
	if err != nil {
		return nil, fmt.Errorf("make the sink: %w", err)
	}
	if cfg.Message.NeedsRegistry() {
		schemas, err := registry.Open(cfg, log)
		if err != nil {
			return nil, errors.Join(err, driver.Close())
		}
		opts = append(opts, relay.WithRegistry(schemas))
	}
	r, err := relay.New(cfg, driver, opts...)
	if err != nil {
		return nil, errors.Join(err, driver.Close()) // the registry has asked nothing yet
	}
	return r, nil
}
