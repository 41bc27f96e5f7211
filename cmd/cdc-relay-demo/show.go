package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/relay"
)

type demoCommand struct{ demo.Flags }

func (c *demoCommand) command() *cobra.Command {
	return cli.Command("demo", "Show it: writer, relay, consumer, console.", demo.Help, c.run, &c.Flags)
}

const (
	demoPartitions = 3
	demoSettling   = 10 * time.Second // for the last events to reach the consumer
	demoTick       = time.Second
)

// demoTypes are the aggregate types that the writer uses, and so the topics.
var demoTypes = []string{"order", "customer", "payment"}

// run shows the whole path on this machine.
func (c *demoCommand) run(a *cli.App) (err error) {
	cfg, err := c.Load(a)
	if err != nil {
		return err
	}
	cli.OutliveReaders() // to stop the servers when no one watches
	// A further Ctrl-C does nothing: the end is bounded, and cutting it short would leave files behind.
	ctx, stop := signal.NotifyContext(context.Background(), cli.Endings()...)
	defer stop()

	say := a.Narration()
	other := "a stand-in for Kafka"
	if c.nats() {
		other = "NATS"
	}
	cli.Fprintf(say, "Starting Postgres and %s …\n", other)
	if !c.nats() {
		return c.onStage(ctx, a, cfg)
	}
	servers, err := startWithNATS(ctx, demoTopics())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	cfg = demoConfig(cfg, servers.addresses())
	cli.Fprintf(say, "Postgres %d is real, at %s\n", servers.postgres.Version(), cfg.Postgres.URL)
	cfg.Sink, cfg.NATS = config.SinkNATS, config.Default().NATS
	cfg.NATS.URL = servers.nats.ClientURL()
	cli.Fprintf(say, "The broker at %s is a real NATS server with JetStream, in this process.\n", cfg.NATS.URL)
	return c.show(ctx, a, cfg)
}

func (c demoCommand) nats() bool { return c.Broker == demo.NATS }

// broker says in the summary what the events went through.
func (c demoCommand) broker() string {
	if c.nats() {
		return "a real NATS server with JetStream, in this process"
	}
	return "an in-process stand-in (kfake), not Kafka"
}

// demoPartitioned are the topics with their numbers of partitions.
func demoPartitioned() map[string]int32 {
	topics := map[string]int32{}
	for _, t := range demoTopics() {
		topics[t] = demoPartitions
	}
	return topics
}

func demoTopics() (topics []string) {
	for _, t := range demoTypes {
		topics = append(topics, "outbox.event."+t)
	}
	return topics
}

// demoConfig is the user's configuration with the demo's own servers and topics.
func demoConfig(cfg config.Config, servers demo.Addresses) config.Config {
	servers.Configure(&cfg)
	cfg.Outbox, cfg.Message, cfg.OnHalt = config.Default().Outbox, config.Default().Message, config.OnHaltExit
	if cfg.Log == config.Default().Log {
		cfg.Log = config.Log{Level: "warn", Format: config.LogConsole} // the picture is the output here
	}
	return cfg
}

// show runs relay, writer and consumer in this process, with NATS, until the time is over, and says what came of it.
func (c demoCommand) show(ctx context.Context, a *cli.App, cfg config.Config) (err error) {
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	if err := install.All(ctx, cfg, st); err != nil {
		return err
	}
	log, lines := a.Logger(cfg)
	r, err := newRelay(a, cfg, log, relay.WithLoggerTo(log, lines))
	if err != nil {
		return err
	}
	server, err := listen(webConfig(cfg, log), r)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	say := a.Narration()
	cli.Fprintf(say, "The console: http://%s (beside it /api/v1/status, /metrics, /readyz)\n", server.Address())
	cli.Fprintf(say, "Writing %d events per second of %d aggregates. Ctrl-C stops.\n\n", c.Rate, c.Aggregates)

	// Stopping goes against the stream: first the writer, then, when all has arrived, the relay and the consumer.
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	if c.Duration > 0 {
		writing, stopWriting = context.WithTimeout(ctx, c.Duration)
		defer stopWriting()
	}
	load := newDemoLoad(c.Rate, c.Aggregates)
	group, groupCtx := errgroup.WithContext(running)
	stopWritingOnFailure := context.AfterFunc(groupCtx, stopWriting)
	defer stopWritingOnFailure()
	group.Go(func() error { return r.Run(groupCtx) })
	group.Go(func() error { return load.consume(groupCtx, cfg) })
	group.Go(func() error {
		return watch(groupCtx, newNarrator(a), load, func() figures { return figuresOf(r.Status()) })
	})
	writeErr := load.write(writing, cfg)
	load.await(groupCtx, demoSettling)
	stopRunning()
	if err := errors.Join(writeErr, group.Wait()); err != nil {
		return err
	}
	return sumUp(a, load.totals(), c.broker())
}

func webConfig(cfg config.Config, log zerolog.Logger) web.Config {
	return web.Config{
		Address: cfg.HTTP.Listen, TokenFile: cfg.HTTP.TokenFile, Read: cfg.HTTP.Read,
		HidePayloads: !cfg.HTTP.ShowPayloads, Logger: log,
	}
}

// listen takes another port when the usual one is in use, as by a relay that is running.
func listen(c web.Config, r *relay.Relay) (*web.Server, error) {
	server, err := web.Listen(c, r)
	if errors.Is(err, syscall.EADDRINUSE) && c.Address == config.Default().HTTP.Listen {
		c.Address = "127.0.0.1:0"
		return web.Listen(c, r)
	}
	return server, err
}
