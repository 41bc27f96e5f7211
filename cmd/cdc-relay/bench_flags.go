package main

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
)

type benchCommand struct {
	Scenarios         []string      `help:"What to measure: drain-1, drain-100 and drain-one-tx empty a filled slot whose transactions have 1, 100 or all rows; paced commits single rows at each of the rates." default:"drain-100,paced" enum:"drain-100,drain-1,drain-one-tx,paced"`
	Events            int           `help:"Events of a drain." default:"200000"`
	Rates             []int         `help:"Commits per second of paced." default:"200,1000"`
	For               time.Duration `help:"How long each pace is kept." default:"10s"`
	Payload           int           `help:"Bytes of payload, about." default:"300"`
	Keys              int           `help:"Aggregates that the events belong to." default:"10000"`
	Partitions        int           `help:"Partitions of the topic." default:"12"`
	ReplicationFactor int           `help:"Replicas of the topic; 0: one per broker, at most 3." default:"0"`
	Runs              int           `help:"Runs of each scenario; the table shows medians." default:"3"`
	Demo              bool          `help:"Use the demo's Postgres and its stand-in for Kafka; the figures are then not Kafka's."`
	Keep              bool          `help:"Keep schema, slot, publication and topic of the runs."`
	SVG               string        `name:"svg" help:"Also plot the latencies of paced into this file." placeholder:"FILE"`
}

func (benchCommand) Help() string {
	return `Measures this relay on the configured Postgres and Kafka, or with --demo on throw-away ones: events per second
beside what the stream alone can give, latency from COMMIT to a consumer, CPU, and correctness: lost, duplicated, out
of order, different. A wrong outcome is a failed run.

It touches no table, slot or topic of yours: each run creates a schema, slot, publication and topic named
cdc_relay_bench_<random>, and removes them at the end. The role needs CREATE on the database and REPLICATION, and the
Kafka principal must be allowed to create topics. It loads both servers as hard as it can: not for production.

Examples:

  cdc-relay bench --demo --events 50000 --runs 1

  cdc-relay bench --config relay.yaml --scenarios drain-100,drain-1 --runs 5 --json

  cdc-relay bench --config relay.yaml --scenarios paced --rates 1000,5000 --svg latency.svg`
}

// load checks the flags and reads the configuration.
func (c benchCommand) load(a *cli.App) (config.Config, error) {
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
