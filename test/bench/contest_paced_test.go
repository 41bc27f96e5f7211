package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// pacedContestant is a contestant's result with commits at even intervals.
type pacedContestant struct {
	firstMessage time.Duration // from the start of the process, with one event waiting
	rss          int64         // peak, bytes
	latencies    []latency     // by rate
	busy         []float64     // share of a core, by rate
}

func (st *stage) contestPaces(t *testing.T, r *result, all []entry) {
	turn := 0
	what := fmt.Sprintf("single-row commits up to %d per second, several rows above, each rate for %v after %v, the "+
		"first after %v at 1000 per second, too; %v, acks=all",
		mostCommits, st.pacedFor, st.pacedWarm, st.longWarmUp, st.shape)
	st.repeat(t, r, "debezium-paced", what, func(t *testing.T) []sample {
		by := contest(st, t, turn, all, (*run).contestPace)
		turn++
		return contestPaceSamples(st.rates, all, by)
	})
}

// contestPace starts a contestant with one event waiting, warms it up and lets it keep up with each rate, one after
// another.
func (r *run) contestPace(e entry) (x pacedContestant) {
	r.t.Helper()
	c := e.enter(r)
	r.exec("INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('" + aggregateType +
		"', 'first', 'OrderPlaced', '{}')")
	c.start()
	began := time.Now()
	r.watch(c, 1)
	from := 0
	keepUp := func(p pace) (latency, float64) {
		p.from = from
		from += p.total
		return r.paceProcess(p, c.pid())
	}
	if r.longWarmUp > 0 {
		keepUp(newPace(1000, 0, r.longWarmUp))
	}
	for _, rate := range r.rates {
		l, busy := keepUp(r.pace(rate))
		x.latencies, x.busy = append(x.latencies, l), append(x.busy, busy)
	}
	r.await(c, "everything is recorded as published", func() bool { return c.recorded(from + 1) })
	x.rss = harness.PeakRSS(r.t, c.pid())
	c.stop()
	x.firstMessage = r.judgeTopic(r.further(e))[0].Sub(began)
	return x
}

func contestPaceSamples(rates []int, all []entry, by map[string]pacedContestant) (samples []sample) {
	for n, rate := range rates {
		for _, e := range all {
			l := by[e.name].latencies[n]
			name := fmt.Sprintf("%d/s, %s: ", rate, e.name)
			samples = append(samples,
				sample{name + "COMMIT returned to received, p50 ms", l.p50, mark{}},
				sample{name + "p95 ms", l.p95, mark{}},
				sample{name + "p99 ms", l.p99, mark{}},
				sample{name + "CPU % of a core", 100 * by[e.name].busy[n], mark{}},
				sample{name + "events per second", l.rate, mark{atLeast: 0.95 * float64(rate)}},
			)
		}
		relay := by[relayName].latencies[n]
		for _, e := range all[1:] {
			l := by[e.name].latencies[n]
			better := mark{}
			if e.name == latencyName {
				better = mark{atLeast: 3}
			}
			name := fmt.Sprintf("%d/s, %s / relay: ", rate, e.name)
			samples = append(samples,
				sample{name + "p50", l.p50 / relay.p50, better},
				sample{name + "p95", l.p95 / relay.p95, better},
				sample{name + "p99", l.p99 / relay.p99, better},
			)
		}
	}
	for _, e := range all {
		samples = append(samples,
			sample{e.name + ": start of the process to first record, ms", milliseconds(by[e.name].firstMessage), mark{}},
			sample{e.name + ": peak RSS, MiB", float64(by[e.name].rss) / (1 << 20), mark{}},
		)
	}
	return samples
}

// Breaks it catches: a comparison whose parts no longer fit each other, and a contestant that is wrong (seen to fail
// with a row of the journal deleted before the verdict, and with paces that begin at the same event). Debezium is left
// out, because nothing is to be fetched for a test.
func TestContestMeasuresAndJudges(t *testing.T) {
	harness.Full(t)
	kafka := harness.Kafka(t)
	if len(kafka.Nodes) == 0 {
		t.Skip("the broker is not of this test: its CPU cannot be read")
	}
	st := &stage{server: harness.Postgres(t), kafka: kafka, options: options{
		runs: 1, shape: shape{payload: 310, keys: 50, partitions: 3, afterPublish: "mark"}, rates: []int{200},
		pacedWarm: 100 * time.Millisecond, pacedFor: 400 * time.Millisecond,
	}}
	r := &result{}
	st.contestDrains(t, r, drain{name: drainBatches, events: 3000, perTransaction: 100}, entries(relayName, pollerName))
	st.contestPaces(t, r, entries(relayName, pollerName))
	for _, name := range []string{"debezium-" + drainBatches, "debezium-paced"} {
		s, found := r.find(name)
		if !found {
			t.Errorf("%s: no figures", name)
		}
		if slices.ContainsFunc(s.Figures, func(f figure) bool { return len(f.Runs) != 1 }) {
			t.Errorf("%s: got %+v, want one run", name, s.Figures)
		}
	}
}
