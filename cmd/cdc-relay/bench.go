package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/embedded"
	"github.com/cdc-relay/cdc-relay/store"
)

type benchCommand struct {
	Scenarios         []string      `help:"What to measure: drain-100, drain-1 and drain-one-tx empty a filled slot, with so many rows in a transaction; paced commits single rows at each of the rates." default:"drain-100,paced" enum:"drain-100,drain-1,drain-one-tx,paced" env:"CDC_RELAY_BENCH_SCENARIOS"`
	Events            int           `help:"Events of a drain." default:"200000" env:"CDC_RELAY_BENCH_EVENTS"`
	Rates             []int         `help:"Commits per second of paced." default:"200,1000" env:"CDC_RELAY_BENCH_RATES"`
	For               time.Duration `help:"How long each pace is kept." default:"10s" env:"CDC_RELAY_BENCH_FOR"`
	Payload           int           `help:"Bytes of payload, about." default:"300" env:"CDC_RELAY_BENCH_PAYLOAD"`
	Keys              int           `help:"Aggregates that the events belong to." default:"10000" env:"CDC_RELAY_BENCH_KEYS"`
	Partitions        int           `help:"Of the topic." default:"12" env:"CDC_RELAY_BENCH_PARTITIONS"`
	ReplicationFactor int           `help:"Of the topic; 0: as many as there are brokers, at most 3." default:"0" env:"CDC_RELAY_BENCH_REPLICATION_FACTOR"`
	Runs              int           `help:"Of each scenario; the table shows medians." default:"3" env:"CDC_RELAY_BENCH_RUNS"`
	Demo              bool          `help:"Use a Postgres and a stand-in for Kafka of its own; the figures are then not Kafka's." env:"CDC_RELAY_BENCH_DEMO"`
	Keep              bool          `help:"Leave schema, slot, publication and topic of the runs there." env:"CDC_RELAY_BENCH_KEEP"`
	SVG               string        `name:"svg" help:"Also draw the latencies of paced into this file." placeholder:"FILE" env:"CDC_RELAY_BENCH_SVG"`
}

func (benchCommand) Help() string {
	return `Measures this relay on the configured Postgres and Kafka, or with --demo on its own: events per second beside what the stream alone can give, latency from COMMIT to a consumer, CPU, and what a judge finds: lost, duplicated, out of order, different. A wrong outcome is a failed run.

It touches no table, slot or topic of yours: each run makes a schema, slot, publication and topic named cdc_relay_bench_<random>, and removes them at the end. The role needs CREATE on the database and REPLICATION, the principal may create topics. It loads both servers with all they can do: not for production.

Examples:

  cdc-relay bench --demo --events 50000 --runs 1

  cdc-relay bench --config relay.yaml --scenarios drain-100,drain-1 --runs 5 --json

  cdc-relay bench --config relay.yaml --scenarios paced --rates 1000,5000 --svg latency.svg`
}

const (
	benchWriters = 8
	benchPrefix  = "cdc_relay_bench_"
)

// rowsPerTransaction are the drains; 0 means all rows in one.
var rowsPerTransaction = map[string]int{"drain-100": 100, "drain-1": 1, "drain-one-tx": 0}

// Run measures scenario by scenario.
func (c benchCommand) Run(a *app) (err error) {
	needs := needsBoth
	if c.Demo {
		needs = needsNothing
	}
	c.validate(a)
	cfg, err := a.load(needs)
	if err != nil {
		return err
	}
	if !c.Demo && cfg.Sink != config.SinkKafka {
		return usageError{fmt.Errorf("sink: found %q; bench measures with a consumer and needs %q", cfg.Sink, config.SinkKafka)}
	}
	ctx, stop := stoppable(context.Background(), func() { fmt.Fprintln(a.err, "stopping; what was made is removed") })
	defer stop()
	if c.Demo {
		end, err := c.demoServers(ctx, &cfg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	tuneMemory(cfg)
	report := benchReport{Started: time.Now().UTC(), Version: readBuild().Version, Go: runtime.Version(), CPUs: runtime.NumCPU(), StandIn: c.Demo}
	tell := a.progress()
	for _, name := range c.Scenarios {
		rates := []int{0}
		if name == "paced" {
			rates = c.Rates
		}
		for _, rate := range rates {
			s := benchScenario{Name: name, Rate: rate}
			s.describe(c)
			for run := range c.Runs {
				tell(fmt.Sprintf("%s, run %d of %d", s.Title, run+1, c.Runs))
				one, err := c.measure(ctx, a, cfg, name, rate)
				if err != nil {
					tell("")
					return fmt.Errorf("%s, run %d: %w", s.Title, run+1, err)
				}
				s.Runs = append(s.Runs, one)
			}
			tell("")
			report.Scenarios = append(report.Scenarios, s)
			if !a.cli.JSON {
				a.printScenario(s)
			}
		}
	}
	if c.SVG != "" {
		if err := writeLatencies(c.SVG, report); err != nil {
			return err
		}
	}
	if a.cli.JSON {
		err = a.printJSON(report)
	} else if c.Demo {
		fmt.Fprintln(a.out, "The broker was an in-process stand-in (kfake), not Kafka: it takes CPU of this process, and its figures say little about a cluster.")
	}
	if err == nil && report.wrong() {
		err = silentError{exitFailed}
	}
	return err
}

func (c benchCommand) validate(a *app) {
	a.atLeast("--events", c.Events, 1)
	a.atLeast("--payload", c.Payload, 0)
	a.atLeast("--keys", c.Keys, 1)
	a.atLeast("--partitions", c.Partitions, 1)
	a.atLeast("--runs", c.Runs, 1)
	a.atLeast("--replication-factor", c.ReplicationFactor, 0)
	for _, rate := range c.Rates {
		a.atLeast("--rates", rate, 1)
	}
	a.notShorter("--for", c.For, time.Second)
}

// demoServers starts what --demo needs.
func (c benchCommand) demoServers(ctx context.Context, cfg *config.Config) (end func() error, err error) {
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{})
	if err != nil {
		return nil, err
	}
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{})
	if err != nil {
		return nil, errors.Join(err, postgres.Stop())
	}
	cfg.Postgres.URL, cfg.Postgres.ReplicationURL, cfg.Postgres.PasswordFile = postgres.URL("postgres"), "", ""
	cfg.Kafka.Brokers, cfg.Sink = broker.Addresses(), config.SinkKafka
	return func() error { broker.Close(); return postgres.Stop() }, nil
}

// measure makes everything that one run needs, runs it, judges it and removes everything.
func (c benchCommand) measure(ctx context.Context, a *app, cfg config.Config, name string, rate int) (one benchRun, err error) {
	area, err := c.newArea(ctx, a, cfg)
	if err != nil {
		return one, err
	}
	defer func() {
		if c.Keep {
			fmt.Fprintf(a.err, "kept: schema, slot and publication %s, topic %s\n", area.name, area.topic)
			return
		}
		err = errors.Join(err, area.remove(context.WithoutCancel(ctx)))
	}()
	if name == "paced" {
		err = c.paced(ctx, area, rate, &one)
	} else {
		err = c.drain(ctx, area, rowsPerTransaction[name], &one)
	}
	if err != nil {
		return one, err
	}
	v, err := verifyCommand{Wait: benchPatience}.audit(ctx, area.cfg, store.AuditRange{}, func(string) {}, nil)
	if err != nil {
		return one, fmt.Errorf("judge the outcome: %w", err)
	}
	one.Judged, one.Missing, one.Duplicated, one.OutOfOrder, one.Different = v.Records, v.Missing, v.Duplicated, v.OutOfOrder, v.Different
	return one, nil
}

// benchReport is what bench found out.
type benchReport struct {
	Started   time.Time       `json:"started_at"`
	Version   string          `json:"version"`
	Go        string          `json:"go"`
	CPUs      int             `json:"cpus"`
	StandIn   bool            `json:"broker_is_a_stand_in"`
	Scenarios []benchScenario `json:"scenarios"`
}

type benchScenario struct {
	Name  string     `json:"name"`
	Rate  int        `json:"rate,omitempty"` // commits per second asked for
	Title string     `json:"title"`
	Runs  []benchRun `json:"runs"`
}

// benchRun is one run. What a scenario does not measure is 0.
type benchRun struct {
	Events     int     `json:"events"`
	Rate       float64 `json:"events_per_second"`
	Floor      float64 `json:"stream_alone_events_per_second,omitempty"`
	CPU        float64 `json:"cpu_seconds_per_million,omitempty"` // of the relay
	FloorCPU   float64 `json:"stream_alone_cpu_seconds_per_million,omitempty"`
	PeakMiB    float64 `json:"peak_resident_mib,omitempty"`
	P50        float64 `json:"latency_p50_ms,omitempty"`
	P95        float64 `json:"latency_p95_ms,omitempty"`
	P99        float64 `json:"latency_p99_ms,omitempty"`
	P999       float64 `json:"latency_p999_ms,omitempty"`
	Most       float64 `json:"latency_max_ms,omitempty"`
	Judged     int     `json:"judged"` // records of the topic that the judge has read
	Missing    int     `json:"missing"`
	Duplicated int     `json:"duplicated"`
	OutOfOrder int     `json:"out_of_order"`
	Different  int     `json:"different"`
}

func (s *benchScenario) describe(c benchCommand) {
	what := fmt.Sprintf("%d bytes of jsonb, %d keys, %d partitions", c.Payload, c.Keys, c.Partitions)
	switch {
	case s.Name == "paced":
		s.Title = fmt.Sprintf("paced: %d single-row commits per second for %v, %s", s.Rate, c.For, what)
	case rowsPerTransaction[s.Name] == 0:
		s.Title = fmt.Sprintf("%s: %d events in one transaction, %s", s.Name, c.Events, what)
	default:
		s.Title = fmt.Sprintf("%s: %d events, %d in a transaction, %s", s.Name, c.Events, rowsPerTransaction[s.Name], what)
	}
}

// wrong says whether a run lost, doubled, changed or reordered something.
func (r benchReport) wrong() bool {
	return slices.ContainsFunc(r.Scenarios, func(s benchScenario) bool {
		return slices.ContainsFunc(s.Runs, func(o benchRun) bool { return o.Missing+o.Duplicated+o.OutOfOrder+o.Different > 0 })
	})
}

func (a *app) printScenario(s benchScenario) {
	fmt.Fprintf(a.out, "%s\n", s.Title)
	line := func(name, format string, pick func(benchRun) float64) {
		values := make([]float64, len(s.Runs))
		for i, r := range s.Runs {
			values[i] = pick(r)
		}
		slices.Sort(values)
		if values[len(values)-1] == 0 {
			return
		}
		text := fmt.Sprintf(format, median(values))
		if len(values) > 1 {
			text += a.paint(faint, fmt.Sprintf("  ("+format+" – "+format+")", values[0], values[len(values)-1]))
		}
		fmt.Fprintf(a.out, "  %-44s %s\n", name, text)
	}
	line("events per second", "%.0f", func(r benchRun) float64 { return r.Rate })
	line("the stream alone, events per second", "%.0f", func(r benchRun) float64 { return r.Floor })
	line("relay / stream alone", "%.2f", func(r benchRun) float64 { return ratio(r.Rate, r.Floor) })
	line("CPU seconds per million events", "%.1f", func(r benchRun) float64 { return r.CPU })
	line("the stream alone, CPU seconds per million", "%.1f", func(r benchRun) float64 { return r.FloorCPU })
	line("peak resident memory, MiB", "%.0f", func(r benchRun) float64 { return r.PeakMiB })
	line("COMMIT to consumer, p50, ms", "%.2f", func(r benchRun) float64 { return r.P50 })
	line("COMMIT to consumer, p95, ms", "%.2f", func(r benchRun) float64 { return r.P95 })
	line("COMMIT to consumer, p99, ms", "%.2f", func(r benchRun) float64 { return r.P99 })
	line("COMMIT to consumer, p99.9, ms", "%.2f", func(r benchRun) float64 { return r.P999 })
	var sum benchRun
	for _, r := range s.Runs {
		sum.Events += r.Events
		sum.Missing, sum.Duplicated = sum.Missing+r.Missing, sum.Duplicated+r.Duplicated
		sum.OutOfOrder, sum.Different = sum.OutOfOrder+r.OutOfOrder, sum.Different+r.Different
	}
	verdict := fmt.Sprintf("%d events: lost %d, duplicated %d, out of order %d, different %d", sum.Events, sum.Missing, sum.Duplicated, sum.OutOfOrder, sum.Different)
	colour := green
	if sum.Missing+sum.Duplicated+sum.OutOfOrder+sum.Different > 0 {
		colour, verdict = red, "WRONG, so the figures do not count. "+verdict
	}
	fmt.Fprintf(a.out, "  %s\n\n", a.paint(colour, strings.TrimSpace(verdict)))
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
