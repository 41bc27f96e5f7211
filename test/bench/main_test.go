// Package bench measures the relay on a real Postgres and a real Kafka, beside what the parts can do without it: the
// same WAL read to nothing by pg_recvlogical and by a bare loop over pglogrepl, and records produced and consumed
// without a database. Each run is interleaved with its floors, so that a figure is a ratio of the same minutes on the
// same machine, and each run of the relay is judged by package verify: a wrong run is a failed run and gives no
// figures.
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
	perfFlag      = flag.String("perf", "",
		"also record CPU profiles into this directory, by Linux perf: of relay and Postgres in the drains, of the whole "+
			"machine at the paces")
	svgFlag     = flag.String("svg", "", "also draw the results into this directory, as SVG")
	eventsFlag  = flag.Int("events", 1_000_000, "events of a drain, if it is none of the following")
	singleFlag  = flag.Int("events-single", 200_000, "events of drain-1")
	backlogFlag = flag.Int("events-backlog", 5_000_000, "events of backlog")
	largeFlag   = flag.Int("large-bytes", 200_000_000, "bytes of all payloads of drain-10k, and of drain-100k, at most")
	parkedFlag  = flag.Int("parked-keys", 10_000, "parked keys of parked")
	longFlag    = flag.Int("long-journal", 50_000_000, "events in the journal when long-journal and long-journal-v4 begin")
	ratesFlag   = flag.String("rates", "200,1000,5000",
		"events per second of the scenarios paced and pace, by commas: one in a transaction up to 5000, more above")
	payloadsFlag = flag.String("payloads", "",
		"kB of the payloads of the paced scenario, by commas: 0.2,1,10; default: as -payload")
	pacedFlag   = flag.Duration("paced-for", 10*time.Second, "how long each rate is kept up and measured")
	payloadFlag = flag.Int("payload", 310, "bytes of a payload, about")
	keysFlag    = flag.Int("keys", 10_000, "aggregates")
	partsFlag   = flag.Int("partitions", 12, "partitions of the topic")
	mirrorFlag  = flag.String("after-publish", "mark", "the relay's outbox.after_publish")
	setFlag     = flag.String("set", "",
		"other settings of the relay, by commas: limits.in_flight_bytes=16MiB,kafka.compression=lz4")
	fsyncFlag   = flag.String("fsync", "on", "Postgres's fsync")
	buffersFlag = flag.String("shared-buffers", "1GB", "Postgres's shared_buffers")
	warmFlag    = flag.Int("warm-up", 3_000_000, "records produced to Kafka first: a young JVM runs at half speed")
)

// options choose what to measure.
type options struct {
	scenarios           []string
	runs                int
	events              int // of a drain
	singles, backlog    int // of the drains of these names
	largeBytes          int // of all payloads of a drain with large ones, at most
	manyParked          int // keys
	longJournal         int // events
	shape                   // of the events, where a scenario does not say otherwise
	rates               []int
	payloads            []int // bytes, of paces; none: as in shape
	pacedWarm, pacedFor time.Duration
	longWarmUp          time.Duration     // before the paces of a comparison
	kafkaWarmUp         int               // records
	relaySettings       []any             // further settings of the relay: key, value, …
	postgres            map[string]string // settings of the server
	perf                string            // directory; "" = none
	variants            []variant         // relays to be compared; none: only this tree's, beside the floors
}

func flagOptions() (options, error) {
	o := options{
		runs: *runsFlag, events: *eventsFlag, singles: *singleFlag, backlog: *backlogFlag, largeBytes: *largeFlag,
		manyParked: *parkedFlag, longJournal: *longFlag,
		pacedWarm: 2 * time.Second, pacedFor: *pacedFlag, longWarmUp: *longWarmUpFlag, kafkaWarmUp: *warmFlag,
		shape:    shape{payload: *payloadFlag, keys: *keysFlag, partitions: *partsFlag, afterPublish: *mirrorFlag},
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
			return o, fmt.Errorf("-rates: %q is not a number of events per second", text)
		}
		o.rates = append(o.rates, rate)
	}
	for _, text := range strings.FieldsFunc(*payloadsFlag, func(r rune) bool { return r == ',' }) {
		size, err := strconv.ParseFloat(text, 64)
		if err != nil || size <= 0 || size > 1000 {
			return o, fmt.Errorf("-payloads: %q is not a number of kB up to 1000", text)
		}
		o.payloads = append(o.payloads, int(size*1000))
	}
	if o.afterPublish == "delete" && slices.ContainsFunc(o.scenarios, func(name string) bool {
		return name == paced || name == atPace
	}) {
		return o, fmt.Errorf("-after-publish delete: after %s and %s there are no rows left to judge by", paced, atPace)
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
	if *svgFlag != "" {
		if err := report.draw(*svgFlag); err != nil {
			t.Error(err)
		}
	}
}

// unlike are the scenarios that differ in more than numbers.
var unlike = []string{drainBatches, drainSingles, drainOneTx, "drain-hot-keys", "drain-100k", "drain-delete",
	"drain-keep", "parked", drainLongV4, paced, atPace}

// TestBenchMeasuresEveryScenario runs each kind of scenario once with little to do. Breaks it catches: a bench that no
// longer fits the relay, and a relay that is wrong (seen to fail with one record of the topic not shown to the judge,
// with a row of the journal deleted before the verdict, with the truth in another order, with deleted rows not kept as
// truth, with nothing parked, and with several rows in a transaction and one of them timed). The relay is that of the
// guarded way in, which is checked: seen to fail with its settings left out.
func TestBenchMeasuresEveryScenario(t *testing.T) {
	harness.Full(t)
	if *scenariosFlag != "" || *clientsFlag != "" || *debeziumFlag != "" {
		t.Skip("left out while measuring")
	}
	report := measure(t, options{
		scenarios: unlike, runs: 1, events: 3000, singles: 500, largeBytes: 5_000_000, manyParked: 300, longJournal: 2000,
		rates:     []int{200, 6000},
		pacedWarm: 100 * time.Millisecond, pacedFor: 400 * time.Millisecond, kafkaWarmUp: 1000,
		shape:    shape{payload: 310, keys: 50, partitions: 3, afterPublish: "mark"},
		postgres: map[string]string{"fsync": "off"}, variants: []variant{{name: overSCRAM}},
	})
	want := append(slices.DeleteFunc(slices.Clone(unlike), func(name string) bool {
		return name == paced || name == atPace
	}), "paced-200", "paced-6000", "pace-200-single", "pace-200-mixed", "pace-6000-single", "pace-6000-mixed")
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
