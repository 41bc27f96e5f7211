package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The faults, in the order of the table.
const (
	noFault     = "none"
	killsFault  = "kill -9"
	cutsFault   = "cut connections"
	brokerFault = "broker kill -9"
	poisonFault = "poison event"
	topicFault  = "missing topic"
)

var faultNames = []string{noFault, killsFault, cutsFault, brokerFault, poisonFault, topicFault}

// sizes is how much of each fault there is.
type sizes struct {
	rate  int // events per second
	kills int
	cuts  int
	warm  time.Duration // before anything is measured or broken
	paced time.Duration // measured without a fault
	after time.Duration // the load goes on so long after a fault
	lasts time.Duration // how long a poison event and a missing topic are left alone
}

const (
	cutPause    = 500 * time.Millisecond // between two cuts
	stuckAfter  = time.Minute            // without a new event: a person restarts it
	givenUp     = 5 * time.Minute        // without a new event after that: a JVM's start on a busy machine takes a minute
	aliveWithin = 5 * time.Minute        // a peer's first record after a start, on a machine however busy
	secondRate  = 100                    // events per second of the second type
)

// run is one peer in one fault.
type run struct {
	t     *testing.T
	w     *world
	peer  *supervised
	sizes sizes
	load  *harness.Load

	ends     []time.Time // of the faults
	from, to time.Time   // while a fault lasts that not all events should feel, or what is measured
	bad      string      // id of a poison event
	byHand   int         // restarts by a person
	sent     int         // how often the poison event is in the topic
	waiting  int         // events that had not come when the peer was given up: late or lost, which no one can say

	peerCPU, postgresCPU time.Duration // in the measured time, or in all
	events               int           // over which
}

// outcome is a row of the table.
type outcome struct {
	peer, fault string
	*run
	verdict
	skipped string
}

func (st *stage) measure(t *testing.T, name, fault string, s sizes) outcome {
	t.Helper()
	w := st.newWorld(t, fault == cutsFault)
	r := &run{t: t, w: w, sizes: s, peer: supervise(t, enter(t, w, name))}
	r.load = harness.StartWorkload(t, w.pg, harness.Workload{Rate: s.rate, Aggregates: 200, PayloadBytes: 200,
		OnlyKept: true}) // a row that its own transaction deletes is nothing that a polling worker could see
	r.alive(0)
	r.pause(s.warm)
	r.caughtUp()
	switch fault {
	case noFault:
		r.pace()
	case killsFault:
		r.kills()
	case cutsFault:
		r.cuts()
	case brokerFault:
		w.kafka.Nodes[0].Kill9()
		w.kafka.Nodes[0].Start(t)
		r.ended()
	case poisonFault:
		r.poisoned()
	case topicFault:
		r.missing()
	}
	r.pause(s.after)
	r.load.Stop(t)
	r.settle()
	if fault != noFault {
		r.peerCPU, r.events = r.peer.used(), r.load.Committed()
	}
	r.peer.stop()
	return r.outcome(name, fault)
}

// pause lets the load go on.
func (r *run) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.Context().Done():
	}
}

func (r *run) ended() { r.ends = append(r.ends, time.Now()) }

// alive waits until the topics have more records than so many: the peer works.
func (r *run) alive(records int) {
	r.t.Helper()
	harness.Eventually(r.t, aliveWithin, "the peer sends", func(ctx context.Context) string {
		if n := r.w.records(ctx); n <= records {
			return fmt.Sprintf("%d records, and %d before; it said: %s", n, records, r.peer.said())
		}
		return ""
	})
}

// caughtUp waits until the peer is at most a second behind the load: a fault is to meet it at work, not in its start.
func (r *run) caughtUp() {
	r.t.Helper()
	harness.Eventually(r.t, aliveWithin, "the peer catches up", func(ctx context.Context) string {
		if n, all := r.w.records(ctx), r.load.Committed(); n < all-r.sizes.rate {
			return fmt.Sprintf("%d records of %d events", n, all)
		}
		return ""
	})
}

// pace measures without a fault.
func (r *run) pace() {
	r.from = time.Now()
	events, used, postgres := r.load.Committed(), r.peer.used(), treeCPU(r.w.pg.Server.PID())
	r.pause(r.sizes.paced)
	r.to = time.Now()
	r.events, r.peerCPU = r.load.Committed()-events, r.peer.used()-used
	r.postgresCPU = treeCPU(r.w.pg.Server.PID()) - postgres
}

// kills kills the peer each time when it has worked for a second.
func (r *run) kills() {
	for range r.sizes.kills {
		before := r.w.records(r.t.Context())
		r.peer.restart()
		r.ended()
		r.alive(before)
		r.pause(time.Second)
	}
}

// cuts breaks connections to the broker and to Postgres alternately, in three ways: all at once, in the middle of what
// the peer sends, and in place of the answer.
func (r *run) cuts() {
	for n := range r.sizes.cuts {
		proxy := r.w.cuts[n%len(r.w.cuts)]
		switch n / len(r.w.cuts) % 3 {
		case 0:
			proxy.Cut()
		case 1:
			proxy.Tear(1)
		case 2:
			proxy.LoseAnswers(1)
		}
		r.pause(cutPause)
		proxy.Tear(0)
		proxy.LoseAnswers(0)
	}
	r.ended()
}

// poisoned has one event that the topic refuses, then a person who allows it, and restarts what sends nothing.
func (r *run) poisoned() {
	r.bad, r.from = r.w.poison(r.t)
	r.pause(r.sizes.lasts)
	r.to = time.Now()
	before := r.w.records(r.t.Context())
	r.w.kafka.Configure(r.t, "max.message.bytes", fmt.Sprint(largestRecord), r.w.made()...)
	r.ended()
	r.pause(2 * time.Second)
	if r.w.records(r.t.Context()) == before {
		r.restartByHand()
	}
}

// missing has events for a topic that is made later.
func (r *run) missing() {
	r.from = time.Now()
	second := harness.StartWorkload(r.t, r.w.pg, harness.Workload{Types: []string{secondType}, Rate: secondRate,
		Aggregates: 50, OnlyKept: true, Writers: 2, Seed: 2})
	r.pause(r.sizes.lasts)
	r.to = time.Now()
	r.w.makeTopic(r.t, secondType)
	r.ended()
	r.pause(r.sizes.after)
	second.Stop(r.t)
}

func (r *run) restartByHand() {
	r.byHand++
	r.peer.restart()
}

// settle waits until every committed event is in a topic. A peer that sends nothing new is restarted once, and at last
// given up.
func (r *run) settle() {
	r.t.Helper()
	left := make(map[string]bool)
	events, err := r.w.committed(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		left[e.ID] = true
	}
	reading := harness.NewReading(r.w.kafka.Addrs, r.w.made())
	patience, since := stuckAfter, time.Now()
	for len(left) > 0 && r.waiting == 0 {
		before := len(left)
		reading.Read(r.t, func(record *kgo.Record) { delete(left, string(harness.Header(record, "id"))) })
		switch {
		case len(left) < before:
			since = time.Now()
		case time.Since(since) < patience:
			r.pause(200 * time.Millisecond)
		case patience == stuckAfter:
			r.restartByHand()
			patience, since = givenUp, time.Now()
		default:
			r.waiting = len(left)
		}
	}
	r.pause(time.Second) // for what comes again
}

func (r *run) outcome(name, fault string) outcome {
	r.t.Helper()
	events, err := r.w.committed(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	arrivals, sent := r.w.arrivals(r.t, r.bad)
	r.sent = sent
	counts := make(map[string]int32)
	for _, topic := range r.w.made() {
		counts[topic] = partitions
	}
	v, err := judge(events, arrivals, counts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%s, %s: %v; ended %d times by itself, restarted %d times by hand", name, fault, v.report, r.peer.ended,
		r.byHand)
	for finding, examples := range v.report.Examples {
		r.t.Logf("%s: %s", finding, examples[0])
	}
	if r.peer.words != "" {
		r.t.Logf("its last words at its first end: %s", r.peer.words)
	}
	return outcome{peer: name, fault: fault, run: r, verdict: v}
}
