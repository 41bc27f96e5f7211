package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	debeziumFlag = flag.String("debezium", "",
		"compare with Debezium and a polling worker: drain-100, drain-1 and paced, by commas")
	longWarmUpFlag = flag.Duration("long-warm-up", 30*time.Second,
		"with -debezium: how long each gets 1,000 commits per second before latencies are measured; a cold JVM needs 20 s "+
			"and more")
)

// TestDebezium compares the relay with Debezium in Kafka Connect, with its defaults and tuned, and with a polling
// worker, on the same Postgres and broker. One runs at a time, each in a database and a topic of its own that are made
// alike, and who begins changes from round to round. All of them are processes that are looked at from outside, in the
// same way, and the outcome of each is judged in the same way. Seen to fail with a version of Debezium that does not
// exist; what the judge finds, see TestContestMeasuresAndJudges.
func TestDebezium(t *testing.T) {
	if *debeziumFlag == "" {
		t.Skip("nothing to measure: make bench-debezium gives -debezium")
	}
	o, err := flagOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.scenarios = strings.Split(*debeziumFlag, ",")
	for _, name := range o.scenarios {
		if !slices.Contains([]string{drainBatches, drainSingles, paced}, name) {
			t.Fatalf("-debezium: %q is none of %s, %s, %s", name, drainBatches, drainSingles, paced)
		}
	}
	// Fetched before anything is measured.
	harness.NewConnect(t, harness.ConnectConfig{HeapMiB: connectHeapMiB})
	st := newStage(t, o)
	r := st.result(t)
	r.Rival = fmt.Sprintf("Debezium %s, Kafka Connect %s standalone, %d MiB heap", harness.DebeziumVersion,
		harness.ConnectVersion, connectHeapMiB)
	for _, name := range o.scenarios {
		switch name {
		case drainBatches:
			st.contestDrains(t, r, drain{name: name, events: o.events, perTransaction: 100},
				entries(relayName, defaultName, throughputName, pollerName))
		case drainSingles:
			st.contestDrains(t, r, drain{name: name, events: min(o.singles, o.events), perTransaction: 1},
				entries(relayName, defaultName, throughputName, pollerName))
		case paced:
			st.contestPaces(t, r, entries(relayName, defaultName, latencyName, pollerName))
		}
	}
	r.Load = append(r.Load, harness.LoadAverage())
	r.print(os.Stdout)
	if *jsonFlag != "" {
		if err := r.write(*jsonFlag); err != nil {
			t.Error(err)
		}
	}
}

// contest runs each contestant once, in a run of its own, and gives what came out by name. Without one of them the
// round is worth nothing.
func contest[T any](st *stage, t *testing.T, turn int, all []entry, measure func(*run, entry) T) map[string]T {
	by := make(map[string]T)
	for n := range all {
		e := all[(turn+n)%len(all)]
		if !t.Run(e.name, func(t *testing.T) {
			r := st.newRun(t, variant{})
			r.relay.Stop(t) // clean, so that no later start looks anything up
			by[e.name] = measure(r, e)
		}) {
			t.FailNow()
		}
	}
	return by
}

// drained is a contestant's result with a slot, or a table, full of events.
type drained struct {
	firstMessage time.Duration // from the start of the process
	// events per second by the broker's clock: first to last record; the second half of them
	rate, warmRate float64
	cpu, warmCPU   float64 // of the process, s per million: all, from its start on; the second half
	wholeCPU       float64 // all, until rows are marked, too, beside the path
	// CPU, s per million, from the first record on: until then they wait, some longer than others
	postgres, brokers float64
	wholePostgres     float64 // until rows are marked, too
	rss               int64   // peak, bytes
}

func (st *stage) contestDrains(t *testing.T, r *result, d drain, all []entry) {
	turn := 0
	what := fmt.Sprintf("%d events, %d rows in a transaction, %v, acks=all", d.events, d.perTransaction, st.shape)
	st.repeat(t, r, "debezium-"+d.name, what, func(t *testing.T) []sample {
		by := contest(st, t, turn, all, func(r *run, e entry) drained { return r.contestDrain(e, d) })
		turn++
		return contestDrainSamples(d, all, by)
	})
}

// progress is how far a contestant was, and what it had used for it.
type progress struct {
	records int
	used    time.Duration
}

func (r *run) contestDrain(e entry, d drain) (x drained) {
	r.t.Helper()
	c := e.enter(r)
	r.load(d)
	r.exec("CHECKPOINT")
	c.start()
	began := time.Now()
	r.watch(c, 1)
	early, before := r.progress(c), r.cost()
	steps := r.watch(c, d.events)
	r.await(c, "everything is recorded as published", func() bool { return c.recorded(d.events) })
	used, _ := processCPU(c.pid())
	after := r.cost().since(before)
	whole, marked := used, after
	if e.name == relayName && r.afterPublish != "keep" {
		r.await(c, "every row is marked", r.mirrored)
		whole, _ = processCPU(c.pid())
		marked = r.cost().since(before)
	}
	x.rss = harness.PeakRSS(r.t, c.pid())
	c.stop()

	times := r.judgeTopic(r.further(e))
	half := d.events / 2
	x.firstMessage = times[0].Sub(began)
	x.rate = float64(d.events) / times[len(times)-1].Sub(times[0]).Seconds()
	x.warmRate = float64(d.events-half) / times[len(times)-1].Sub(times[half]).Seconds()
	x.cpu, x.wholeCPU = perMillion(used, d.events), perMillion(whole, d.events)
	middle := steps[slices.IndexFunc(steps, func(p progress) bool { return p.records >= half })]
	x.warmCPU = perMillion(used-middle.used, d.events-middle.records)
	x.postgres = perMillion(after.postgres.total, d.events-early.records)
	x.wholePostgres = perMillion(marked.postgres.total, d.events-early.records)
	x.brokers = perMillion(after.kafka, d.events-early.records)
	return x
}

// further gives the judge the relay's journal too.
func (r *run) further(e entry) func(*verify.Judge) {
	if e.name == relayName {
		return r.judgeJournal
	}
	return nothingFurther
}

// watch follows the topic until so many events are in it.
func (r *run) watch(c contestant, events int) (steps []progress) {
	r.t.Helper()
	r.await(c, fmt.Sprintf("%d records are in the topic", events), func() bool {
		steps = append(steps, r.progress(c))
		return steps[len(steps)-1].records >= events
	})
	return steps
}

func (r *run) progress(c contestant) (p progress) {
	r.t.Helper()
	ends, err := r.admin.ListEndOffsets(r.t.Context(), r.topic)
	if err != nil {
		r.t.Fatalf("look how far the topic is: %v", err)
	}
	ends.Each(func(end kadm.ListedOffset) { p.records += int(max(end.Offset, 0)) })
	p.used, _ = processCPU(c.pid())
	return p
}

// await asks until done says so, and fails when the contestant has ended or does not get there. It asks seldom, because
// a question to the broker costs it CPU, too.
func (r *run) await(c contestant, what string, done func() bool) {
	r.t.Helper()
	const patience = 10 * time.Minute // a million events, one by one, on a busy machine
	limit := time.After(patience)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		if c.pid() == 0 {
			r.t.Fatalf("%s: the process has ended", what)
		}
		select {
		case <-ticker.C:
		case <-limit:
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func contestDrainSamples(d drain, all []entry, by map[string]drained) (samples []sample) {
	for _, figure := range []struct {
		name string
		of   func(drained) float64
	}{
		{"events/s, first to last record", func(x drained) float64 { return x.rate }},
		{"events/s, second half", func(x drained) float64 { return x.warmRate }},
		{"start of the process to first record, ms", func(x drained) float64 { return milliseconds(x.firstMessage) }},
		{"CPU s per million of the process, from its start on", func(x drained) float64 { return x.cpu }},
		{"CPU s per million of the process, second half", func(x drained) float64 { return x.warmCPU }},
		{"CPU s per million of Postgres, from the first record on", func(x drained) float64 { return x.postgres }},
		{"  the same until rows are marked, too", func(x drained) float64 { return x.wholePostgres }},
		{"CPU s per million of Kafka, from the first record on", func(x drained) float64 { return x.brokers }},
		{"peak RSS, MiB", func(x drained) float64 { return float64(x.rss) / (1 << 20) }},
	} {
		for _, e := range all {
			samples = append(samples, sample{e.name + ": " + figure.name, figure.of(by[e.name]), mark{}})
		}
	}
	relay := by[relayName]
	samples = append(samples, sample{"relay: CPU s per million, until every row is marked", relay.wholeCPU, mark{}})
	faster := 2.5
	if d.perTransaction == 1 {
		faster = 2
	}
	for _, e := range all[1:] {
		x := by[e.name]
		rate, cpu := mark{}, mark{}
		if e.name == throughputName {
			rate, cpu = mark{atLeast: faster}, mark{atLeast: 12}
		}
		samples = append(samples,
			sample{"relay / " + e.name + ": events/s, second half", relay.warmRate / x.warmRate, rate},
			sample{"relay / " + e.name + ": events/s, first to last record", relay.rate / x.rate, mark{}},
			sample{"relay / " + e.name + ": events per CPU s, second half", x.warmCPU / relay.warmCPU, cpu},
			sample{"relay / " + e.name + ": events per CPU s, from the start on", x.cpu / relay.cpu, mark{}},
		)
	}
	return samples
}
