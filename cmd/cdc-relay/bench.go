package main

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/bench"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
	"github.com/cdc-relay/cdc-relay/config"
)

// Run measures scenario by scenario.
func (c benchCommand) Run(a *cli.App) (err error) {
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
