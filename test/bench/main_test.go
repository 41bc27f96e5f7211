// Package bench measures the relay on a real Postgres and a real Kafka, beside what the parts can do without it: the same WAL read
// to nothing by pg_recvlogical and by a bare loop over pglogrepl, and records produced and consumed without a database.
// Each run is interleaved with its floors, so that a figure is a ratio of the same minutes on the same machine, and
// each run of the relay is judged by package verify: a wrong run is a failed run and gives no figures.
//
//	make bench                                   everything, with the defaults of the flags
//	make bench ARGS="-scenarios drain-100 -runs 3 -json out.json"
//	make bench-clients                           the relay's Kafka sink beside other Go clients
//	make bench-debezium                          the relay beside Debezium and a polling worker
//
// What the figures mean stands in docs/benchmarks.md.
package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(clientVariable); text != "" {
		os.Exit(runClient(text))
	}
	if text := os.Getenv(pollerVariable); text != "" {
		os.Exit(runPoller(text))
	}
	harness.Main(m)
}

// The flags. Without -scenarios nothing is measured, so that `go test ./...` runs only the small check of the bench
// itself.
var (
	scenariosFlag = flag.String("scenarios", "", "what to measure, by commas, or all: "+strings.Join(scenarioNames, ", "))
	runsFlag      = flag.Int("runs", 5, "runs of each scenario; the table shows medians")
	jsonFlag      = flag.String("json", "", "also write the results to this file, as JSON")
	perfFlag      = flag.String("perf", "", "also record CPU profiles of relay and Postgres in the drains into this directory, by Linux perf")
	eventsFlag    = flag.Int("events", 1_000_000, "events of drain-100 and drain-one-tx")
	singleFlag    = flag.Int("events-single", 200_000, "events of drain-1")
	ratesFlag     = flag.String("rates", "200,1000,5000", "commits per second of the paced scenario, by commas")
	pacedFlag     = flag.Duration("paced-for", 10*time.Second, "how long each rate is kept up and measured")
	payloadFlag   = flag.Int("payload", 310, "bytes of a payload, about")
	keysFlag      = flag.Int("keys", 10_000, "aggregates")
	partsFlag     = flag.Int("partitions", 12, "partitions of the topic")
	mirrorFlag    = flag.String("after-publish", "mark", "the relay's outbox.after_publish")
	setFlag       = flag.String("set", "", "other settings of the relay, by commas: limits.in_flight_bytes=16MiB,kafka.compression=lz4")
	fsyncFlag     = flag.String("fsync", "on", "Postgres's fsync")
	buffersFlag   = flag.String("shared-buffers", "1GB", "Postgres's shared_buffers")
	warmFlag      = flag.Int("warm-up", 3_000_000, "records produced to Kafka first: a young JVM runs at half speed")
)

// The scenarios.
const (
	drainBatches = "drain-100"    // 100 rows in a transaction
	drainSingles = "drain-1"      // one row in a transaction
	drainOneTx   = "drain-one-tx" // all rows in one transaction
	paced        = "paced"        // single-row commits at a given rate
)

var scenarioNames = []string{drainBatches, drainSingles, drainOneTx, paced}

// options is what to measure.
type options struct {
	scenarios               []string
	runs                    int
	events, singles         int
	rates                   []int
	pacedWarm, pacedFor     time.Duration
	longWarmUp              time.Duration // before the paces of a comparison
	payload, keys           int
	partitions, kafkaWarmUp int
	afterPublish            string
	relaySettings           []any             // further settings of the relay: key, value, …
	postgres                map[string]string // settings of the server
	perf                    string            // directory; "" = none
	variants                []variant         // relays to be compared; none: only this tree's, beside the floors
}

func flagOptions() (options, error) {
	o := options{
		runs: *runsFlag, events: *eventsFlag, singles: *singleFlag, pacedWarm: 2 * time.Second, pacedFor: *pacedFlag, longWarmUp: *longWarmUpFlag,
		payload: *payloadFlag, keys: *keysFlag, partitions: *partsFlag, kafkaWarmUp: *warmFlag, afterPublish: *mirrorFlag,
		postgres: postgresSettings(*fsyncFlag, *buffersFlag), perf: *perfFlag,
	}
	switch *scenariosFlag {
	case "":
	case "all":
		o.scenarios = scenarioNames
	default:
		o.scenarios = strings.Split(*scenariosFlag, ",")
	}
	for _, name := range o.scenarios {
		if !slices.Contains(scenarioNames, name) {
			return o, fmt.Errorf("-scenarios: %q is none of %s", name, strings.Join(scenarioNames, ", "))
		}
	}
	for _, text := range strings.Split(*ratesFlag, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return o, fmt.Errorf("-rates: %q is not a number of commits per second", text)
		}
		o.rates = append(o.rates, rate)
	}
	for _, pair := range strings.FieldsFunc(*setFlag, func(r rune) bool { return r == ',' }) {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return o, fmt.Errorf("-set: %q is not key=value", pair)
		}
		o.relaySettings = append(o.relaySettings, key, value)
	}
	if o.perf != "" {
		if err := os.MkdirAll(o.perf, 0o755); err != nil {
			return o, fmt.Errorf("-perf: %w", err)
		}
	}
	return o, nil
}

// postgresSettings is a server as it may be in production, but for checkpoints: none falls into a run by itself.
func postgresSettings(fsync, sharedBuffers string) map[string]string {
	return map[string]string{
		"fsync": fsync, "synchronous_commit": "on", "shared_buffers": sharedBuffers,
		"max_wal_size": "32GB", "checkpoint_timeout": "1h",
	}
}

// TestBench measures what -scenarios names. Seen to fail with one record of the topic not shown to the judge.
func TestBench(t *testing.T) {
	if *scenariosFlag == "" {
		t.Skip("nothing to measure: make bench gives -scenarios")
	}
	o, err := flagOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.variants = variants(t, *relaysFlag)
	report := measure(t, o)
	report.print(os.Stdout)
	if *jsonFlag != "" {
		if err := report.write(*jsonFlag); err != nil {
			t.Error(err)
		}
	}
}

// TestBenchMeasuresEveryScenario runs each scenario once with little to do. Breaks it catches: a bench that no longer
// fits the relay, and a relay that is wrong (seen to fail with one record of the topic not shown to the judge, with a
// row of the journal deleted before the verdict, and with the truth in another order).
func TestBenchMeasuresEveryScenario(t *testing.T) {
	if *scenariosFlag != "" || *clientsFlag != "" || *debeziumFlag != "" {
		t.Skip("left out while measuring")
	}
	report := measure(t, options{
		scenarios: scenarioNames, runs: 1, events: 3000, singles: 500, rates: []int{200}, pacedWarm: 100 * time.Millisecond,
		pacedFor: 400 * time.Millisecond, payload: 310, keys: 50, partitions: 3, kafkaWarmUp: 1000, afterPublish: "mark",
		postgres: map[string]string{"fsync": "off"},
	})
	want := []string{drainBatches, drainSingles, drainOneTx, "paced-200"}
	for _, name := range want {
		scenario, found := report.find(name)
		if !found {
			t.Errorf("scenario %s: no figures", name)
			continue
		}
		for _, f := range scenario.Figures {
			if len(f.Runs) != 1 {
				t.Errorf("scenario %s, %s: got %d runs, want 1", name, f.Name, len(f.Runs))
			}
		}
	}
}
