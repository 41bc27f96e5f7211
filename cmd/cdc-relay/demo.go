package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/store"
)

type demoCommand struct {
	Rate       int           `help:"Events per second that the writer commits." default:"200" env:"CDC_RELAY_DEMO_RATE"`
	Aggregates int           `help:"Aggregates that they belong to; order is kept for each." default:"50" env:"CDC_RELAY_DEMO_AGGREGATES"`
	Duration   time.Duration `help:"Stop by itself after this time; 0: on Ctrl-C." default:"0s" env:"CDC_RELAY_DEMO_DURATION"`
}

func (demoCommand) Help() string {
	return `Starts a real Postgres (the one that is installed, else one that is downloaded once), a stand-in for Kafka inside this process, a writer, the relay and a consumer, and shows what flows. Ctrl-C stops all of it and leaves nothing behind. Exit code 1 when the consumer did not get every event.

Example:

  cdc-relay demo --rate 500 --duration 10s`
}

const (
	demoPartitions = 3
	demoSettling   = 10 * time.Second // for the last events to reach the consumer
	demoTick       = time.Second
)

// demoTypes are the aggregate types that the writer uses, and so the topics.
var demoTypes = []string{"order", "customer", "payment"}

// Run shows the whole path on this machine.
func (c demoCommand) Run(a *app) (err error) {
	a.atLeast("--rate", c.Rate, 1)
	a.atLeast("--aggregates", c.Aggregates, 1)
	a.notShorter("--duration", c.Duration, 0)
	cfg, err := a.load(needsNothing)
	if err != nil {
		return err
	}
	// A further Ctrl-C does nothing: the end is bounded, and cutting it short would leave files behind.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	say := a.aside()
	fmt.Fprintln(say, "Starting Postgres and a stand-in for Kafka …")
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()
	topics := map[string]int32{}
	for _, t := range demoTypes {
		topics["outbox.event."+t] = demoPartitions
	}
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: topics})
	if err != nil {
		return err
	}
	defer broker.Close()
	cfg = demoConfig(cfg, postgres.URL("postgres"), broker.Addresses())
	fmt.Fprintf(say, "Postgres %d is real, at %s\nThe broker at %s is not Kafka: it is an in-process stand-in (kfake), good for a look and for no promise.\n",
		postgres.Version(), cfg.Postgres.URL, cfg.Kafka.Brokers[0])
	return c.show(ctx, a, cfg)
}

// demoConfig is what the user set, on the demo's own servers and topics.
func demoConfig(cfg config.Config, url string, brokers []string) config.Config {
	cfg.Postgres.URL, cfg.Postgres.ReplicationURL, cfg.Postgres.PasswordFile = url, "", ""
	cfg.Kafka.Brokers = brokers
	cfg.Outbox, cfg.Message, cfg.OnHalt = config.Default().Outbox, config.Default().Message, config.OnHaltExit
	if cfg.Log == config.Default().Log {
		cfg.Log = config.Log{Level: "warn", Format: config.LogConsole} // the picture is the output here
	}
	return cfg
}

// show runs relay, writer and consumer until the time is over, and says what came of it.
func (c demoCommand) show(ctx context.Context, a *app, cfg config.Config) (err error) {
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	if err := createAll(ctx, cfg, st); err != nil {
		return err
	}
	driver, err := kafka.New(kafkaConfig(cfg))
	if err != nil {
		return err
	}
	r := relay.New(relay.Options{Config: cfg, Driver: driver, Logger: a.logger(cfg), Version: readBuild().Version})
	server, err := listenForDemo(httpConfig(cfg, a.logger(cfg)), r)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	say := a.aside()
	fmt.Fprintf(say, "The console: http://%s (beside it /api/v1/status, /metrics, /readyz)\n", server.Address())
	fmt.Fprintf(say, "Writing %d events per second of %d aggregates. Ctrl-C stops.\n\n", c.Rate, c.Aggregates)

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
	group.Go(func() error { return a.watchDemo(groupCtx, load, r) })
	writeErr := load.write(writing, cfg)
	load.await(groupCtx, demoSettling)
	stopRunning()
	if err := errors.Join(writeErr, group.Wait()); err != nil {
		return err
	}
	return a.sumUp(load.totals())
}

// listenForDemo takes another port when the usual one is in use, as by a relay that is running.
func listenForDemo(c admin.Config, r *relay.Relay) (*admin.Server, error) {
	server, err := admin.Listen(c, r)
	if errors.Is(err, syscall.EADDRINUSE) && c.Address == config.Default().HTTP.Listen {
		c.Address = "127.0.0.1:0"
		return admin.Listen(c, r)
	}
	return server, err
}

// aside is where a command tells people what it does meanwhile: with --json standard output is for machines.
func (a *app) aside() io.Writer {
	if a.cli.JSON {
		return a.err
	}
	return a.out
}

// watchDemo prints one line a second, in place on a terminal.
func (a *app) watchDemo(ctx context.Context, load *demoLoad, r *relay.Relay) error {
	ticker := time.NewTicker(demoTick)
	defer ticker.Stop()
	begun, before := time.Now(), 0
	lineEnd, say := "\n", a.aside()
	if isTerminal(say) {
		lineEnd = ""
		defer fmt.Fprintln(say)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, half, most := load.interval()
		status := r.Status()
		line := fmt.Sprintf("%5.0fs  %-8s received %d  %d/s  latency p50 %s p95 %s  lag %s  backlog %s",
			time.Since(begun).Seconds(), status.Role, now.received, now.received-before, milliseconds(half), milliseconds(most), figure(status.LagBytes, bytesOf), figure(status.Backlog, whole))
		before = now.received
		if lineEnd == "" {
			line = "\r\x1b[K" + line
		}
		fmt.Fprint(say, line+lineEnd)
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// demoSummary is the outcome in JSON.
type demoSummary struct {
	Broker     string  `json:"broker"`
	Written    int     `json:"written"`
	Received   int     `json:"received"`
	Missing    int     `json:"missing"`
	Duplicated int     `json:"duplicated"`
	OutOfOrder int     `json:"out_of_order"`
	Latency50  float64 `json:"latency_p50_seconds"` // from insert to consumer
	Latency95  float64 `json:"latency_p95_seconds"`
}

func (a *app) sumUp(t demoTotals) error {
	if a.cli.JSON {
		err := a.printJSON(demoSummary{
			Broker: "an in-process stand-in (kfake), not Kafka", Written: t.written, Received: t.received, Missing: t.missing, Duplicated: t.duplicated,
			OutOfOrder: t.reordered, Latency50: t.half.Seconds(), Latency95: t.most.Seconds(),
		})
		if err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.out, "\nwritten %d, received %d: missing %d, duplicated %d, out of order %d; latency from insert to consumer p50 %s, p95 %s\n",
			t.written, t.received, t.missing, t.duplicated, t.reordered, milliseconds(t.half), milliseconds(t.most))
	}
	if t.missing > 0 || t.reordered > 0 {
		return errors.New("the consumer did not get every event in order")
	}
	return nil
}
