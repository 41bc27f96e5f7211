package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/bench"
)

var scenarioNames = []string{"drain-100", "drain-1", "drain-one-tx", "paced"}

type benchCommand struct {
	Scenarios                                          []string
	Events                                             int
	Rates                                              []int
	For                                                time.Duration
	Payload, Keys, Partitions, ReplicationFactor, Runs int
	Demo, Keep                                         bool
	SVG                                                string
}

func (c *benchCommand) command() *cobra.Command {
	cmd := cli.Command("bench", "Measure throughput, latency and correctness.",
		`Measures this relay on the configured Postgres and Kafka, or with --demo on throw-away ones: events per second
beside what the stream alone can give, latency from COMMIT to a consumer, CPU, and correctness: lost, duplicated, out
of order, different. A wrong outcome is a failed run.

It touches no table, slot or topic of yours: each run creates a schema, slot, publication and topic named
cdc_relay_bench_<random>, and removes them at the end. The role needs CREATE on the database and REPLICATION, and the
Kafka principal must be allowed to create topics. It loads both servers as hard as it can: not for production.

Examples:

  cdc-relay bench --demo --events 50000 --runs 1

  cdc-relay bench --config relay.yaml --scenarios drain-100,drain-1 --runs 5 --json

  cdc-relay bench --config relay.yaml --scenarios paced --rates 1000,5000 --svg latency.svg`, c.Run)
	f := cmd.Flags()
	f.StringSliceVar(&c.Scenarios, "scenarios", []string{"drain-100", "paced"}, "What to measure: drain-1, "+
		"drain-100 and drain-one-tx empty a filled slot whose transactions have 1, 100 or all rows; paced commits "+
		"single rows at each of the rates.")
	_ = f.SetAnnotation("scenarios", cli.Offered, scenarioNames)
	f.IntVar(&c.Events, "events", 200000, "Events of a drain.")
	f.IntSliceVar(&c.Rates, "rates", []int{200, 1000}, "Commits per second of paced.")
	f.DurationVar(&c.For, "for", 10*time.Second, "How long each pace is kept.")
	f.IntVar(&c.Payload, "payload", 300, "Bytes of payload, about.")
	f.IntVar(&c.Keys, "keys", 10000, "Aggregates that the events belong to.")
	f.IntVar(&c.Partitions, "partitions", 12, "Partitions of the topic.")
	f.IntVar(&c.ReplicationFactor, "replication-factor", 0, "Replicas of the topic; 0: one per broker, at most 3.")
	f.IntVar(&c.Runs, "runs", 3, "Runs of each scenario; the table shows medians.")
	f.BoolVar(&c.Demo, "demo", false, "Use the demo's Postgres and its stand-in for Kafka; the figures are then "+
		"not Kafka's.")
	f.BoolVar(&c.Keep, "keep", false, "Keep schema, slot, publication and topic of the runs.")
	f.Var(&cli.TextFlag{Into: &c.SVG, Shown: "FILE"}, "svg", "Also plot the latencies of paced into this file.")
	return cmd
}

// load checks the flags and reads the configuration.
func (c benchCommand) load(a *cli.App) (config.Config, error) {
	for _, name := range c.Scenarios {
		a.OneOf("--scenarios", name, scenarioNames)
	}
	a.AtLeast("--events", c.Events, 1)
	a.AtLeast("--payload", c.Payload, 0)
	a.AtLeast("--keys", c.Keys, 1)
	a.AtLeast("--partitions", c.Partitions, 1)
	a.AtLeast("--runs", c.Runs, 1)
	a.AtLeast("--replication-factor", c.ReplicationFactor, 0)
	for _, rate := range c.Rates {
		a.AtLeast("--rates", rate, 1)
	}
	a.NotShorter("--for", c.For, time.Second)
	needs := cli.NeedsBoth
	if c.Demo {
		needs = cli.NeedsNothing
	}
	cfg, err := a.Load(needs)
	if err == nil && !c.Demo && cfg.Sink != config.SinkKafka {
		err = cli.Usage(fmt.Errorf("sink: found %q; bench measures with a consumer and needs %q", cfg.Sink, config.SinkKafka))
	}
	if cfg.Log == config.Default().Log {
		cfg.Log = config.Log{Level: "warn", Format: config.LogConsole} // the table is the output here
	}
	return cfg, err
}

// Run measures scenario by scenario.
func (c *benchCommand) Run(a *cli.App) (err error) {
	cfg, err := c.load(a)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(func() { cli.Fprintln(a.Err, "stopping and removing what was created") })
	defer stop()
	if c.Demo {
		servers, err := demo.Serve(ctx, a)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers.Close()) }()
		servers.Configure(&cfg)
	}
	cli.TuneMemory(cfg)
	report, err := bench.Run(ctx, c.options(a, cfg)) // with an error: what was measured before
	if report.StandIn = c.Demo; c.SVG != "" && len(report.Scenarios) > 0 {
		err = errors.Join(err, report.Draw(c.SVG))
	}
	if a.JSON {
		err = errors.Join(err, a.PrintJSON(report))
	} else if c.Demo {
		cli.Fprintln(a.Out, "The broker was a stand-in (kfake), not Kafka: its figures say little about a cluster.")
	}
	if err == nil && report.Wrong() {
		err = cli.ErrFailed
	}
	return err
}

func (c benchCommand) options(a *cli.App, cfg config.Config) bench.Options {
	log, _ := a.Logger(cfg)
	o := bench.Options{
		Config: cfg, Logger: log, Version: a.Build.Facts().Version,
		Scenarios: c.Scenarios, Rates: c.Rates, Events: c.Events, Runs: c.Runs, For: c.For,
		Payload: c.Payload, Keys: c.Keys, Partitions: c.Partitions, ReplicationFactor: c.ReplicationFactor,
		Tell: a.Progress(),
	}
	if c.Keep {
		o.Keep = func(name, topic string) {
			cli.Fprintf(a.Err, "kept: schema, slot and publication %s, topic %s\n", name, topic)
		}
	}
	if !a.JSON {
		o.Done = func(s bench.Scenario) { show.Scenario(a, s) }
	}
	return o
}
