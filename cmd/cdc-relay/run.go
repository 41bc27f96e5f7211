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
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/internal/watch/tracing"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/relay"
)

func runCommand() *cobra.Command {
	many := new(manyCommand)
	cmd := cli.Command("run", "Relay until stopped.",
		`Streams until SIGTERM, SIGINT or SIGHUP. The first signal stops in order and waits for requests in flight
(shutdown_grace); a second one exits at once. Logs go to standard error, and the relay never waits for their reader:
lines beyond 1 MiB are dropped and counted. Run cdc-relay init once first.

With --config-dir each *.yaml file of the directory is a relay of its own, named after the file, in this one process.
Files that appear, change or go start, restart or stop their relay alone. http.* and log.* are set for the process, by
flags or the environment.

Examples:

  cdc-relay run --config relay.yaml
  cdc-relay run --config-dir /etc/cdc-relay/relays

To look at the messages without a broker, use a slot and tables of their own (run init with the same flags first):

  cdc-relay run --config relay.yaml --sink stdout --outbox-after-publish keep \
      --postgres-slot look_stdout --postgres-schema look_stdout`,
		func(a *cli.App) error {
			if many.Directory != "" || a.Given("config-dir") {
				return many.Run(a)
			}
			many.mistakes(a)
			return relayUntilStopped(a)
		})
	many.addTo(cmd)
	return cmd
}

// relayUntilStopped relays until stopped.
func relayUntilStopped(a *cli.App) error {
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	cli.TuneMemory(cfg)
	cfg, unnamed := named(context.Background(), a.Origin, cfg)
	log, lines := logger(a, cfg)
	inbox, err := consumers.Open(context.Background(), ask.InboxOf(cfg))
	if err != nil {
		return err
	}
	defer inbox.Close()
	server, err := listen(cfg, inbox, log)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(cfg, log)
	defer stop()
	go cli.FollowLoad(ctx)
	if unnamed != nil {
		waiting := log.With().Str("http", server.Address()).Logger()
		if cfg, err = awaitName(ctx, a.Origin, cfg, unnamed, waiting, server.Wait); err != nil {
			return server.Close() // it was stopped
		}
		log = cli.Labelled(log, lines, cfg)
	}
	return errors.Join(relayNamed(ctx, a, cfg, server, log, lines), server.Close())
}

func listen(cfg config.Config, inbox *consumers.Desk, log zerolog.Logger) (*web.Server, error) {
	return web.Open(web.Config{
		Address: cfg.HTTP.Listen, TokenFile: cfg.HTTP.TokenFile, Read: cfg.HTTP.Read,
		HidePayloads: !cfg.HTTP.ShowPayloads, Inbox: inbox,
		Logger: log,
	})
}

func untilSignal(cfg config.Config, log zerolog.Logger) (context.Context, func()) {
	return cli.UntilSignal(func() {
		log.Info().Stringer("grace", cfg.ShutdownGrace).Msg("stopping; a second signal exits at once")
	})
}

const (
	namePatience = 5 * time.Second // for the database to say which slot is the relay's
	nameEvery    = 2 * time.Second // how often it is asked
)

// origin is where a key of the configuration has its value from; "": it is the default.
type origin func(key string) string

// named asks the database for the slot, if the configuration does not name one.
func named(ctx context.Context, from origin, cfg config.Config) (config.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	return ask.Name(ctx, from, cfg)
}

// awaitName asks until the database answers, or the context ends; wait is told why there is no relay yet.
func awaitName(ctx context.Context, from origin, cfg config.Config, last error, log zerolog.Logger, wait func(string),
) (config.Config, error) {
	ticker := time.NewTicker(nameEvery)
	defer ticker.Stop()
	for said := ""; ; {
		if text := last.Error(); text != said {
			said = text
			wait("waiting for the database, which says which slot is this relay's (postgres.slot is not set)")
			log.Warn().Err(last).Msg("postgres.slot is not set, and the database does not say which slot is this relay's; " +
				"asking again until it does. Nothing is published until then")
		}
		select {
		case <-ctx.Done():
			return cfg, ctx.Err()
		case <-ticker.C:
		}
		found, err := named(ctx, from, cfg)
		if err == nil {
			return found, nil
		}
		last = err
	}
}

// relayNamed relays through the slot that the configuration names.
func relayNamed(ctx context.Context, a *cli.App, cfg config.Config, server *web.Server, log zerolog.Logger,
	lines *logqueue.Writer) error {
	reader := newReader(cli.Beneath(a.Out)) // of the file itself: the driver writes again what it could not write
	ctx, endWithReader := reader.until(ctx, log, lines)
	defer endWithReader()
	one := job{cfg: cfg, version: a.Build.Facts().Version, schemas: a.Schemas(), log: log, lines: lines, out: reader,
		begins: func(r *relay.Relay) {
			server.Serve(r)
			log.Info().Str("http", server.Address()).Str("version", a.Build.Facts().Version).
				Str("slot", cfg.Postgres.Slot).Str("console", "http://"+ask.Reachable(server.Address())+"/").
				Msg("cdc-relay starts")
			server.WarnOfToken()
		}}
	err := one.run(ctx)
	if err == nil && reader.isGone() {
		err = errors.New("standard output has no reader")
	}
	return err
}

// job is one relay to be run: its configuration, and what it is made of beside it.
type job struct {
	cfg     config.Config
	version string
	schemas *schemas.Set
	log     zerolog.Logger
	lines   *logqueue.Writer // that log writes to
	out     *reader          // of sink stdout
	options []relay.Option
	begins  func(*relay.Relay) // called when it is made, before it runs
}

// run makes the relay, and relays until the context ends.
func (j job) run(ctx context.Context) error {
	log, cfg := j.log, j.cfg
	options := append([]relay.Option{relay.WithLoggerTo(log, j.lines), relay.WithVersion(j.version),
		relay.WithSchemas(j.schemas)}, j.options...)
	tracer, err := tracing.New(context.Background(), tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, Ratio: cfg.Tracing.SampleRatio, Service: cfg.Service, Version: j.version, Logger: log,
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
	r, err := brokers.Relay(cfg, log, j.out, options...)
	if err != nil {
		return err
	}
	j.begins(r)
	warn(cfg, log)
	looking, seen := context.WithCancel(context.Background())
	defer seen()
	if cfg.Sink == config.SinkKafka {
		go lookAhead(looking, cfg, log)
	}
	return r.Run(ctx)
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
