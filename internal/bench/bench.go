// Package bench measures a relay beside what the stream alone can give, and judges what came of each run: a run that
// lost, duplicated, changed or reordered something gives no figures. What is measured (the scenarios, the rows that are
// written, the statistics and the plots) serves the command and the long comparisons of test/bench; [Run] measures in
// this process, on servers that exist. It starts no server, and prints nothing.
//
// Tested by the command bench (cmd/cdc-relay) and by the comparisons of test/bench.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// The scenarios that a run of [Run] can be.
const (
	DrainBatches = "drain-100"    // 100 rows in a transaction
	DrainSingles = "drain-1"      // one row in a transaction
	DrainOneTx   = "drain-one-tx" // all rows in one transaction
	Paced        = "paced"        // commits at a given rate
)

// RowsPerTransaction are those of a drain of so many events.
func RowsPerTransaction(scenario string, events int) int {
	switch scenario {
	case DrainSingles:
		return 1
	case DrainOneTx:
		return events
	}
	return 100
}

// Options choose what Run measures, and where.
type Options struct {
	Config  config.Config // the servers; table, slot, publication and topic are those of each run
	Logger  zerolog.Logger
	Version string

	Scenarios         []string
	Rates             []int // commits per second of Paced
	Events            int   // of a drain
	Runs              int   // of each scenario
	For               time.Duration
	Payload, Keys     int
	Partitions        int // of the topic
	ReplicationFactor int // of the topic; 0: as many as there are brokers, at most 3

	Keep func(name, topic string) // if not nil, what a run made stays, and Keep is told
	Tell func(string)             // is shown what is being done, an empty line at the end of a scenario; nil: no one is
	Done func(Scenario)           // is told each scenario's outcome; nil: no one is
}

// Report holds the results.
type Report struct {
	Started   time.Time  `json:"started_at"`
	Version   string     `json:"version"`
	Go        string     `json:"go"`
	CPUs      int        `json:"cpus"`
	StandIn   bool       `json:"broker_is_a_stand_in"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is one scenario, at one rate if it is paced.
type Scenario struct {
	Name  string    `json:"name"`
	Rate  int       `json:"rate,omitempty"` // commits per second asked for
	Title string    `json:"title"`
	Runs  []Outcome `json:"runs"`
}

// Outcome is the result of one run. Values that a scenario does not measure are 0.
type Outcome struct {
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

// Wrong reports whether the run lost, duplicated, changed or reordered something.
func (o Outcome) Wrong() bool { return o.Missing+o.Duplicated+o.OutOfOrder+o.Different > 0 }

// Wrong reports whether any run was wrong.
func (r Report) Wrong() bool {
	return slices.ContainsFunc(r.Scenarios, func(s Scenario) bool { return slices.ContainsFunc(s.Runs, Outcome.Wrong) })
}

// Run measures scenario by scenario.
func Run(ctx context.Context, o Options) (Report, error) {
	report := Report{Started: time.Now().UTC(), Version: o.Version, Go: runtime.Version(), CPUs: runtime.NumCPU()}
	for _, name := range o.Scenarios {
		rates := []int{0}
		if name == Paced {
			rates = o.Rates
		}
		for _, rate := range rates {
			s, err := o.scenario(ctx, name, rate)
			if err != nil {
				return report, err
			}
			report.Scenarios = append(report.Scenarios, s)
			if o.Done != nil {
				o.Done(s)
			}
		}
	}
	return report, nil
}

// scenario runs one scenario as often as it is to be.
func (o Options) scenario(ctx context.Context, name string, rate int) (Scenario, error) {
	s := Scenario{Name: name, Rate: rate, Title: o.title(name, rate)}
	tell := o.Tell
	if tell == nil {
		tell = func(string) {}
	}
	defer tell("")
	for run := range o.Runs {
		tell(fmt.Sprintf("%s, run %d of %d", s.Title, run+1, o.Runs))
		one, err := o.measure(ctx, name, rate)
		if err != nil {
			return s, fmt.Errorf("%s, run %d: %w", s.Title, run+1, err)
		}
		s.Runs = append(s.Runs, one)
	}
	return s, nil
}

func (o Options) title(name string, rate int) string {
	what := fmt.Sprintf("%d bytes of jsonb, %d keys, %d partitions", o.Payload, o.Keys, o.Partitions)
	switch name {
	case Paced:
		return fmt.Sprintf("paced: %d single-row commits per second for %v, %s", rate, o.For, what)
	case DrainOneTx:
		return fmt.Sprintf("%s: %d events in one transaction, %s", name, o.Events, what)
	}
	return fmt.Sprintf("%s: %d events, %d in a transaction, %s", name, o.Events, RowsPerTransaction(name, o.Events), what)
}

// measure makes everything that one run needs, runs it, judges it and removes everything.
func (o Options) measure(ctx context.Context, name string, rate int) (one Outcome, err error) {
	area, err := o.newArea(ctx)
	if err != nil {
		return one, err
	}
	defer func() {
		if o.Keep != nil {
			o.Keep(area.name, area.topic)
			return
		}
		err = errors.Join(err, area.remove(context.WithoutCancel(ctx)))
	}()
	if name == Paced {
		err = o.paced(ctx, area, rate, &one)
	} else {
		err = o.drain(ctx, area, RowsPerTransaction(name, o.Events), &one)
	}
	if err != nil {
		return one, err
	}
	return one, area.judge(ctx, &one)
}

// judge compares the table with the topic.
func (b *area) judge(ctx context.Context, one *Outcome) error {
	st, err := store.Open(ctx, relay.StoreConfig(b.cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	v, err := audit.Run(ctx, b.cfg, st, audit.Options{Wait: patience})
	if err != nil {
		return fmt.Errorf("judge the outcome: %w", err)
	}
	one.Judged, one.Missing, one.Duplicated = v.Records, v.Missing, v.Duplicated
	one.OutOfOrder, one.Different = v.OutOfOrder, v.Different
	return nil
}
