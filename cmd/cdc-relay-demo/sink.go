package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/stdout"
)

// newRelay makes the relay with the driver of its broker. The demo makes that itself: through internal/brokers it would
// link, and a first go run compile, the drivers of all brokers.
func newRelay(a *cli.App, cfg config.Config, log zerolog.Logger, opts ...relay.Option) (*relay.Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	driver, err := newDriver(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("make the sink: %w", err)
	}
	r, err := relay.New(cfg, driver, append(opts, relay.WithVersion(a.Build.Facts().Version))...)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return r, nil
}

func newDriver(cfg config.Config, log zerolog.Logger) (sink.Driver, error) {
	switch cfg.Sink {
	case config.SinkNATS:
		return natsDriver(cfg)
	case config.SinkStdout:
		return stdout.New(stdout.Config{Writer: os.Stdout}), nil
	}
	k := cfg.Kafka
	compression, err := kafka.ParseCompression(k.Compression)
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Config{
		Brokers: k.Brokers, ClientID: k.ClientID, Compression: compression, MaxBatchBytes: int(k.MaxBatchBytes),
		RequestTimeout: k.RequestTimeout.Std(), DialTimeout: k.DialTimeout.Std(),
		Hooks: kafka.Hooks{Alarm: func(a sink.Alarm) {
			log.Warn().Str("alarm", a.Kind).Str("topic", a.Topic).Int32("partition", a.Partition).Msg(a.Text)
		}},
	})
}
