package bench

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	clientsFlag = flag.String("clients", "",
		"compare Kafka clients: cpu and rates of records per second, by commas: cpu,1000,10000,50000")
	recordsFlag = flag.Int("records", 1_000_000, "records of each run of -clients cpu")
	paceFlag    = flag.Duration("clients-for", 4*time.Second, "how long a client keeps a rate of -clients up in each run")
)

// clients are those of -clients cpu.
var clients = []string{"sink", "franz", "franz-linger", "writer", javaClient}

// comparison is shared by all runs of clients.
type comparison struct {
	*stage
	records, warmUp int
	paceFor         time.Duration
}

// TestClients compares the relay's sink with other clients: each run is a process of its own, in turns, on one broker.
// Seen to fail with a client that leaves one record out.
func TestClients(t *testing.T) {
	if *clientsFlag == "" {
		t.Skip("nothing to measure: make bench-clients gives -clients")
	}
	o, err := flagOptions()
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{
		stage:   &stage{options: o, kafka: harness.NewOwnKafka(t, harness.KafkaConfig{Fast: true, HeapMiB: 1024})},
		records: *recordsFlag, warmUp: 50_000, paceFor: *paceFlag,
	}
	c.stage.warmUp(t)
	r := &result{When: time.Now(), Commit: commit(), Machine: thisMachine(), Kafka: "4.3.0, one broker, 1 GB heap",
		Load: []string{harness.LoadAverage()}}
	for _, what := range strings.Split(*clientsFlag, ",") {
		if what == "cpu" {
			c.compareCPU(t, r)
			continue
		}
		rate, err := strconv.Atoi(what)
		if err != nil || rate < 1 {
			t.Fatalf("-clients: %q is neither cpu nor a number of records per second", what)
		}
		c.comparePaced(t, r, rate)
	}
	r.Load = append(r.Load, harness.LoadAverage())
	r.print(os.Stdout)
	if *jsonFlag != "" {
		if err := r.write(*jsonFlag); err != nil {
			t.Error(err)
		}
	}
}

// manyPartitions is from where on kafka.Writer is left out: with 1,000 its batches are of one record, 100 CPU s per
// million and 90 s of a round.
const manyPartitions = 200

// compareCPU lets each client produce as fast as it can.
func (c comparison) compareCPU(t *testing.T, r *result) {
	what := fmt.Sprintf("%d records of %d bytes as fast as it goes, acks=all, %d partitions, one process each, in turns",
		c.records, c.payload, c.partitions)
	names := clients
	if c.partitions >= manyPartitions {
		names = slices.DeleteFunc(slices.Clone(clients), func(name string) bool { return name == "writer" })
	}
	round := 0
	c.repeat(t, r, "clients-cpu", what, func(t *testing.T) []sample {
		by := c.round(t, round, names, orders{Records: c.records})
		round++
		perMillion := func(name string) float64 { return by[name].CPU * 1e6 / float64(c.records) }
		best := min(perMillion("franz"), perMillion("franz-linger"))
		samples := []sample{
			{"sink / franz-go, the better of the two: CPU", perMillion("sink") / best, mark{atMost: 0.8}},
		}
		for _, name := range names[1:] {
			samples = append(samples,
				sample{"sink / " + name + ": CPU", perMillion("sink") / perMillion(name), mark{}},
				sample{"sink / " + name + ": records per second", by[name].Seconds / by["sink"].Seconds, mark{}})
		}
		for _, name := range names {
			samples = append(samples,
				sample{name + ", CPU s per million", perMillion(name), mark{}},
				sample{name + ", records per second", float64(c.records) / by[name].Seconds, mark{}})
		}
		return samples
	})
}

// comparePaced lets each client produce at a rate without any linger.
func (c comparison) comparePaced(t *testing.T, r *result, rate int) {
	what := fmt.Sprintf(
		"%d records per second for %v, hand-over to acknowledgement, no linger, one process each, in turns", rate, c.paceFor)
	round := 0
	c.repeat(t, r, fmt.Sprintf("clients-%d", rate), what, func(t *testing.T) []sample {
		names := []string{"sink", "franz", "writer"}
		by := c.round(t, round, names, orders{Records: int(float64(rate) * c.paceFor.Seconds()), Rate: rate})
		round++
		samples := []sample{
			{"sink / franz-go: p50", by["sink"].P50 / by["franz"].P50, mark{atMost: 1}},
			{"sink / franz-go: p99", by["sink"].P99 / by["franz"].P99, mark{atMost: 1.5}},
		}
		for _, name := range names {
			o := by[name]
			samples = append(samples,
				sample{name + ", p50 ms", o.P50, mark{}}, sample{name + ", p99 ms", o.P99, mark{}},
				sample{name + ", max ms", o.Max, mark{}},
				sample{name + ", CPU % of a core", 100 * o.CPU / o.Seconds, mark{}})
		}
		return samples
	})
}

// round runs each client once; who begins changes from round to round.
func (c comparison) round(t *testing.T, n int, names []string, o orders) map[string]outcome {
	t.Helper()
	by := make(map[string]outcome)
	for i := range names {
		name := names[(n+i)%len(names)]
		by[name] = c.once(t, name, o)
	}
	return by
}

// once runs one client in its own process, on a topic of its own, and checks that everything arrived.
func (c comparison) once(t *testing.T, name string, o orders) (r outcome) {
	t.Helper()
	o.Client, o.Brokers, o.WarmUp = name, c.kafka.Addrs, c.warmUp
	if name == javaClient {
		o.WarmUp *= 10 // its code is compiled while it runs
	}
	o.Payload, o.Keys, o.Outstanding = c.payload, c.keys, 50_000
	o.Topic = harness.Unique(t, name)
	c.kafka.CreateTopic(t, o.Topic, c.partitions, nil)
	c.kafka.AwaitInSync(t, o.Topic) // kafka.Writer gives up where the others wait
	defer harness.DeleteTopic(t, c.kafka.Addrs, o.Topic)
	if c.perf != "" {
		o.Profile = filepath.Join(c.perf, fmt.Sprintf("%s-%d.pprof", o.Topic, o.Rate))
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	command := o.program(t)
	command.Env = append(os.Environ(), clientVariable+"="+string(text))
	answer, err := command.Output()
	if err == nil {
		err = json.Unmarshal(answer, &r)
	}
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatalf("run the client %q: %v", name, err)
	}
	var total int64
	ends, err := c.kafka.Admin(t).ListEndOffsets(t.Context(), o.Topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	if want := int64(o.WarmUp + o.Records); total != want {
		t.Fatalf("client %q: got %d records in the topic, want %d", name, total, want)
	}
	return r
}

// program is the client's process: this one again, or Java's.
func (o orders) program(t *testing.T) *exec.Cmd {
	t.Helper()
	if o.Client == javaClient {
		java, classpath := harness.KafkaPrograms(t)
		return exec.CommandContext(t.Context(), java, "-cp", classpath, "Producer.java")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), self)
}

// Breaks it catches: a client of the comparison that no longer does what it is told (seen to fail with a client that
// leaves one record out).
func TestEveryClientProduces(t *testing.T) {
	harness.Full(t)
	c := comparison{
		stage:  &stage{options: options{shape: shape{payload: 310, keys: 50, partitions: 3}}, kafka: harness.Kafka(t)},
		warmUp: 1000,
	}
	for _, name := range append(slices.Collect(maps.Keys(producers)), javaClient) {
		for _, rate := range []int{0, 20_000} {
			o := c.once(t, name, orders{Records: 2000, Rate: rate})
			if o.Seconds <= 0 || o.CPU <= 0 || rate > 0 && (o.P50 <= 0 || o.P99 < o.P50) {
				t.Errorf("client %q at %d per second: got %+v, want figures", name, rate, o)
			}
		}
	}
}
