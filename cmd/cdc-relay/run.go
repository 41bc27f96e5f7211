package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/tracing"
)

type runCommand struct{}

func (runCommand) Help() string {
	return "Streams until SIGTERM or SIGINT: the first stops in order and waits for requests in flight (shutdown_grace), a second exits at once. Logs go to standard error. Run cdc-relay init once before.\n\nExamples:\n\n  cdc-relay run --config relay.yaml\n\nA look at the messages without a broker, with a slot and tables of its own (run init with the same flags before):\n\n  cdc-relay run --config relay.yaml --sink stdout --outbox-after-publish keep --postgres-slot look_stdout --postgres-schema look_stdout"
}

// Run relays until stopped.
func (runCommand) Run(a *app) error {
	cfg, err := a.load(needsBoth)
	if err != nil {
		return err
	}
	tuneMemory(cfg)
	log := a.logger(cfg)
	driver, err := a.newDriver(cfg)
	if err != nil {
		return err
	}
	options := relay.Options{Config: cfg, Driver: driver, Logger: log, Version: readBuild().Version}
	tracer, err := tracing.New(context.Background(), tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, Ratio: cfg.Tracing.SampleRatio, Service: cfg.Service, Version: options.Version, Logger: log,
	})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	if tracer != nil {
		options.Tracer = tracer
		defer func() {
			if err := tracer.Close(); err != nil {
				log.Warn().Err(err).Msg("spans of the last moments are lost; events are not concerned")
			}
		}()
	}
	r := relay.New(options)
	server, err := admin.Listen(httpConfig(cfg, log), r)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	log.Info().Str("http", server.Address()).Str("version", readBuild().Version).Msg("cdc-relay starts")
	if !store.Journaling {
		log.Error().Msg("this build records nothing of what it publishes and loses events: it is for a benchmark only")
	}
	if cfg.Sink == config.SinkStdout {
		log.Warn().Str("slot", cfg.Postgres.Slot).Str("schema", cfg.Postgres.Schema).
			Msg("sink is stdout: messages are printed and go to no broker. The slot keeps WAL on the server until it is dropped: drop slot and schema when you have seen enough")
	}
	looking, seen := context.WithCancel(context.Background())
	defer seen()
	if cfg.Sink != config.SinkStdout {
		go lookAhead(looking, cfg, log)
	}
	ctx, stop := stoppable(context.Background(), func() {
		log.Info().Stringer("grace", cfg.ShutdownGrace).Msg("stopping; a second signal exits at once")
	})
	defer stop()
	err = r.Run(ctx)
	return errors.Join(err, server.Close())
}

// httpConfig is the listener's part of the configuration.
func httpConfig(cfg config.Config, log zerolog.Logger) admin.Config {
	return admin.Config{Address: cfg.HTTP.Listen, TokenFile: cfg.HTTP.TokenFile, HidePayloads: !cfg.HTTP.ShowPayloads, Logger: log}
}

// aheadPatience is how long the look at the brokers beside the start may take.
const aheadPatience = 30 * time.Second

// lookAhead says in the log what check would say of brokers and topics, so that a start does not need another command to
// tell what will go wrong. Nothing waits for it: brokers that are away are waited for by the sink.
func lookAhead(ctx context.Context, cfg config.Config, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, aheadPatience)
	defer cancel()
	var r report
	examineKafka(ctx, cfg, &r)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // stopping
	}
	for _, f := range r.Checks {
		severity := map[level]zerolog.Level{warn: zerolog.WarnLevel, fail: zerolog.ErrorLevel}[f.Level]
		if f.Level != ok {
			log.WithLevel(severity).Str("check", f.Name).Str("fix", f.Fix).Msg(f.Text)
		}
	}
}

// logger writes to standard error in the configured form.
func (a *app) logger(cfg config.Config) zerolog.Logger {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	var w io.Writer = a.err
	if cfg.Log.Format == config.LogConsole {
		w = zerolog.ConsoleWriter{Out: a.err, NoColor: !a.coloured(a.err), TimeFormat: time.RFC3339}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Str("service", cfg.Service).Logger()
}

// sameSignal is how close to the first signal another one is taken for the same: timeout(1), and a shell's Ctrl-C with a wrapper that
// passes it on, send to the process and to its group.
const sameSignal = 100 * time.Millisecond

// stoppable gives a context that the first SIGTERM or SIGINT ends, after announcing it; a second one exits the process
// at once. The function that it returns must be called at the end.
func stoppable(parent context.Context, announce func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			announce()
			cancel()
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(first) > sameSignal {
					fmt.Fprintln(os.Stderr, "a second signal: exiting at once")
					os.Exit(exitFailed)
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
