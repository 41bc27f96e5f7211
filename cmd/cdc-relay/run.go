package main

import (
	"context"
	"errors"
	stdlog "log"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/internal/watch/tracing"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/relay"
)

func runCommand() *cobra.Command {
	return cli.Command("run", "Relay until stopped.",
		`Streams until SIGTERM, SIGINT or SIGHUP. The first signal stops in order and waits for requests in flight
(shutdown_grace); a second one exits at once. Logs go to standard error, and the relay never waits for their reader:
lines beyond 1 MiB are dropped and counted. Run cdc-relay init once first.

Examples:

  cdc-relay run --config relay.yaml

To look at the messages without a broker, use a slot and tables of their own (run init with the same flags first):

  cdc-relay run --config relay.yaml --sink stdout --outbox-after-publish keep \
      --postgres-slot look_stdout --postgres-schema look_stdout`, relayUntilStopped)
}

// relayUntilStopped relays until stopped.
func relayUntilStopped(a *cli.App) error {
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	cli.TuneMemory(cfg)
	cfg, unnamed := named(context.Background(), a, cfg)
	log, lines := logger(a, cfg)
	inbox, err := consumers.Open(context.Background(), ask.InboxOf(cfg))
	if err != nil {
		return err
	}
	defer inbox.Close()
	server, err := web.Open(web.Config{
		Address: cfg.HTTP.Listen, TokenFile: cfg.HTTP.TokenFile, Read: cfg.HTTP.Read,
		HidePayloads: !cfg.HTTP.ShowPayloads, Inbox: inbox,
		Logger: log,
	})
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(func() {
		log.Info().Stringer("grace", cfg.ShutdownGrace).Msg("stopping; a second signal exits at once")
	})
	defer stop()
	if unnamed != nil {
		if cfg, err = awaitName(ctx, a, cfg, server, log, unnamed); err != nil {
			return server.Close() // it was stopped
		}
		log = cli.Labelled(log, lines, cfg)
	}
	return errors.Join(relayNamed(ctx, a, cfg, server, log, lines), server.Close())
}

const (
	namePatience = 5 * time.Second // for the database to say which slot is the relay's
	nameEvery    = 2 * time.Second // how often it is asked
)

// named asks the database for the slot, if the configuration does not name one.
func named(ctx context.Context, a *cli.App, cfg config.Config) (config.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	return ask.Name(ctx, a, cfg)
}

// awaitName asks until the database answers, or the context ends.
func awaitName(ctx context.Context, a *cli.App, cfg config.Config, server *web.Server, log zerolog.Logger, last error,
) (config.Config, error) {
	ticker := time.NewTicker(nameEvery)
	defer ticker.Stop()
	for said := ""; ; {
		if text := last.Error(); text != said {
			said = text
			server.Wait("waiting for the database, which says which slot is this relay's (postgres.slot is not set)")
			log.Warn().Str("http", server.Address()).Err(last).Msg("postgres.slot is not set, and the database does not " +
				"say which slot is this relay's; asking again until it does. Nothing is published until then")
		}
		select {
		case <-ctx.Done():
			return cfg, ctx.Err()
		case <-ticker.C:
		}
		found, err := named(ctx, a, cfg)
		if err == nil {
			return found, nil
		}
		last = err
	}
}

// relayNamed relays through the slot that the configuration names.
func relayNamed(ctx context.Context, a *cli.App, cfg config.Config, server *web.Server, log zerolog.Logger,
	lines *logqueue.Writer) error {
	version := a.Build.Facts().Version
	reader := newReader(cli.Beneath(a.Out)) // of the file itself: the driver writes again what it could not write
	options := []relay.Option{relay.WithLoggerTo(log, lines), relay.WithVersion(version), relay.WithSchemas(a.Schemas())}
	tracer, err := tracing.New(context.Background(), tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, Ratio: cfg.Tracing.SampleRatio, Service: cfg.Service, Version: version, Logger: log,
	})
	if err != nil {
		return err
	}
	if tracer != nil {
		options = append(options, relay.WithTracer(tracer))
		defer func() {
			if err := tracer.Close(); err != nil {
				log.Warn().Err(err).Msg("the last trace spans were lost; no event was")
			}
		}()
	}
	r, err := brokers.Relay(cfg, log, reader, options...)
	if err != nil {
		return err
	}
	server.Serve(r)
	ctx, endWithReader := reader.until(ctx, log, lines)
	defer endWithReader()
	log.Info().Str("http", server.Address()).Str("version", version).Str("slot", cfg.Postgres.Slot).
		Msg("cdc-relay starts")
	server.WarnOfToken()
	warn(cfg, log)
	looking, seen := context.WithCancel(context.Background())
	defer seen()
	if cfg.Sink == config.SinkKafka {
		go lookAhead(looking, cfg, log)
	}
	err = r.Run(ctx)
	if err == nil && reader.isGone() {
		err = errors.New("standard output has no reader")
	}
	return err
}

// logger makes the loggers of a relay and of its libraries. None of them waits for a reader, or ends with one.
func logger(a *cli.App, cfg config.Config) (zerolog.Logger, *logqueue.Writer) {
	cli.OutliveReaders()
	log, lines := a.Logger(cfg)
	stdlog.SetFlags(0)
	stdlog.SetOutput(log.With().Str("logger", "library").Logger())
	return log, lines
}

// warn logs what a person would rather know before the first event.
func warn(cfg config.Config, log zerolog.Logger) {
	for _, w := range check.Encryption(cfg) {
		log.Warn().Str("fix", w.Fix).Msg(w.Text)
	}
	if cfg.Sink == config.SinkStdout {
		log.Warn().Str("slot", cfg.Postgres.Slot).Str("schema", cfg.Postgres.Schema).
			Msg("sink is stdout: messages are printed and go to no broker. The slot keeps WAL on the server until it is " +
				"dropped: drop slot and schema when you have seen enough")
	}
}
