package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// pace is a load of commits that come at even intervals.
type pace struct {
	rate    int // events per second
	rows    int // in a transaction; 0: 1 to mixedRows, in turns
	total   int // events, those of the warm-up included; whole transactions
	skipped int // of these, the first ones, which are not measured
	writers int // sessions: each waits for its own commits, so a slow disk needs more of them
	from    int // number of the first event: those of one table differ
}

func (st *stage) pace(rate int) pace { return newPace(rate, st.pacedWarm, st.pacedFor) }

// mostCommits is how many single-row commits per second are asked for: a machine that runs everything can hardly do
// more. Of more events several are in a transaction, and a fifth as many transactions are made.
const mostCommits = 5000

func newPace(rate int, warm, measured time.Duration) pace {
	p := pace{rate: rate, rows: 1}
	if rate > mostCommits {
		p.rows = (rate + mostCommits/5 - 1) / (mostCommits / 5)
	}
	count := func(d time.Duration) int {
		return p.rows * int(math.Ceil(float64(rate)*d.Seconds()/float64(p.rows)))
	}
	p.total, p.skipped = count(warm+measured), count(warm)
	p.writers = min(max(rate/p.rows/100, 4), 64)
	return p
}

// mixedRows is the size of the largest transaction of a mixed pace.
const mixedRows = 50

// mixedPace has transactions of 1 to mixedRows rows.
func mixedPace(rate int, warm, measured time.Duration) pace {
	p := newPace(rate, warm, measured)
	p.rows, p.writers = 0, 4
	return p
}

// transaction returns the first event of transaction n, and the first behind it.
func (p pace) transaction(n int) (from, to int) {
	if p.rows > 0 {
		return n * p.rows, (n + 1) * p.rows
	}
	const step = 37 // without a common factor: each size comes once in mixedRows transactions, small beside large ones
	from = n / mixedRows * (mixedRows * (mixedRows + 1) / 2)
	for k := range n % mixedRows {
		from += 1 + k*step%mixedRows
	}
	return from, from + 1 + n%mixedRows*step%mixedRows
}

// wait waits until an event is to begin.
func (p pace) wait(start time.Time, n int) {
	due := start.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	if left := time.Until(due); left > 0 {
		time.Sleep(left) // the sleep sets the pace
	}
}

// trace holds when each event was done on one side, and came out on the other, since base. Each element is written by
// one goroutine and read after all have ended.
type trace struct {
	base      time.Time
	done, out []time.Duration
}

func newTrace(p pace) *trace {
	return &trace{base: time.Now(), done: make([]time.Duration, p.total), out: make([]time.Duration, p.total)}
}

// latency is the distribution of out - done over the measured events, in milliseconds. An event that is out before its
// writer has seen COMMIT return counts as 0.
type latency struct {
	p50, p95, p99, most float64
	early               float64 // share of these, percent
	rate                float64 // events per second that were really done
}

func (x *trace) latency(p pace) latency {
	var l latency
	all := make([]float64, 0, p.total-p.skipped)
	from, to := x.done[p.skipped], time.Duration(0)
	for n := p.skipped; n < p.total; n++ {
		from, to = min(from, x.done[n]), max(to, x.done[n])
		d := milliseconds(x.out[n] - x.done[n])
		if d <= 0 {
			l.early++
		}
		all = append(all, max(d, 0))
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[min(int(q*float64(len(all))), len(all)-1)] }
	l.p50, l.p95, l.p99, l.most = at(0.50), at(0.95), at(0.99), all[len(all)-1]
	l.early *= 100 / float64(len(all))
	l.rate = float64(len(all)-1) / (to - from).Seconds()
	return l
}

// latencyMark is the first mark, at 1,000 commits per second, in milliseconds.
var latencyMark = mark{atMost: 3}

// paces measures each rate with each size of payloads.
func (st *stage) paces(t *testing.T, r *result) {
	for _, rate := range st.rates {
		name := fmt.Sprintf("%s-%d", paced, rate)
		if len(st.payloads) == 0 {
			st.pacesOf(t, r, name, rate)
		}
		for _, size := range st.payloads {
			st.with(shape{payload: size}).pacesOf(t, r, fmt.Sprintf("%s-%vkB", name, float64(size)/1000), rate)
		}
	}
}

func (st *stage) pacesOf(t *testing.T, r *result, name string, rate int) {
	p := st.pace(rate)
	commits := "single-row commits"
	if p.rows > 1 {
		commits = fmt.Sprintf("events, %d in a transaction,", p.rows)
	}
	what := fmt.Sprintf("%d %s per second by %d sessions for %v after %v of warm-up, %v", rate, commits, p.writers,
		st.pacedFor, st.pacedWarm, st.shape)
	turn := 0
	st.repeat(t, r, name, what, func(t *testing.T) []sample {
		turn++
		return st.inTurns(t, turn, func(t *testing.T, v variant) []sample { return st.paceOnce(t, v, p) })
	})
}

const relayLatency = "COMMIT returned to received, "

// paceOnce measures the two floors and the relay one after another, so that none takes the other's CPU.
func (st *stage) paceOnce(t *testing.T, v variant, p pace) []sample {
	r := st.newRun(t, v)
	none, p50 := mark{}, mark{}
	if p.rate == 1000 {
		p50 = latencyMark
	}
	var wal, broker latency
	if len(st.variants) == 0 {
		wal, broker = r.paceBareStream(p), r.paceBareKafka(p)
	}
	stopProfile := r.profileMachine(fmt.Sprintf("%s-%d", paced, p.rate))
	whole, busy := r.paceRelay(p)
	stopProfile()
	rss := r.relay.PeakRSS(t)
	r.relay.Stop(t)
	samples := []sample{
		{relayLatency + "p50 ms", whole.p50, p50},
		{relayLatency + "p95 ms", whole.p95, none},
		{relayLatency + "p99 ms", whole.p99, none},
		{"COMMIT returned to received, max ms", whole.most, none},
		{"  received before COMMIT returned, %", whole.early, none},
		{"  events per second", whole.rate, mark{atLeast: 0.95 * float64(p.rate)}},
		{"relay, CPU % of a core", 100 * busy, none},
		{"relay, peak RSS, MiB", float64(rss) / (1 << 20), none},
	}
	if len(st.variants) > 0 {
		return samples
	}
	return append(samples, []sample{
		{"floor COMMIT returned to pgoutput Commit, p50 ms", wal.p50, none},
		{"floor COMMIT returned to pgoutput Commit, p95 ms", wal.p95, none},
		{"floor COMMIT returned to pgoutput Commit, p99 ms", wal.p99, none},
		{"  received before COMMIT returned, %", wal.early, none},
		{"  events per second", wal.rate, mark{atLeast: 0.95 * float64(p.rate)}},
		{"floor produce to received, p50 ms", broker.p50, none},
		{"floor produce to received, p95 ms", broker.p95, none},
		{"floor produce to received, p99 ms", broker.p99, none},
		{"relay p50 / sum of the floors' p50", whole.p50 / (wal.p50 + broker.p50), none},
		{"relay p99 / sum of the floors' p99", whole.p99 / (wal.p99 + broker.p99), none},
	}...)
}

// awaited runs a reader beside the function that makes its input, and fails if it has not read everything a while
// after.
func (r *run) awaited(what string, read func() error, stop func(), feed func()) {
	r.t.Helper()
	const patience = 30 * time.Second
	done := make(chan error, 1)
	go func() { done <- read() }()
	ended := false
	defer func() {
		stop()
		if !ended {
			<-done
		}
	}()
	feed()
	select {
	case err := <-done:
		ended = true
		if err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		r.t.Fatalf("%s: not everything came within %v of the last event", what, patience)
	}
}

// paceBareStream measures COMMIT returned -> Commit message received by the bare loop, on a table of its own that the
// relay does not know.
func (r *run) paceBareStream(p pace) latency {
	r.t.Helper()
	r.exec("CREATE TABLE bare (LIKE outbox_events INCLUDING ALL)")
	r.exec("CREATE PUBLICATION bare FOR TABLE bare WITH (publish = 'insert')")
	r.exec("SELECT pg_create_logical_replication_slot('bare', 'pgoutput')")
	stream, err := openBareStream(r.t.Context(), r.pg.URL, "bare", "bare")
	if err != nil {
		r.t.Fatalf("open the bare stream: %v", err)
	}
	x := newTrace(p)
	read := func() error {
		var open []int
		for left := p.total; left > 0; {
			message, err := stream.next()
			if err != nil {
				return err
			}
			if len(message) == 0 {
				continue
			}
			switch message[0] {
			case 'I':
				n, err := numberOf(insertedID(message), p)
				if err != nil {
					return err
				}
				open = append(open, n)
			case 'C':
				now := time.Since(x.base)
				for _, n := range open {
					x.out[n] = now
				}
				left -= len(open)
				open = open[:0]
			}
		}
		return nil
	}
	r.awaited("the bare stream", read, stream.close, func() { r.write(p, "bare", x) })
	return x.latency(p)
}

// follower is a consumer of what comes into a topic from now on.
func (r *run) follower(topic string) *kgo.Client {
	r.t.Helper()
	var ends kadm.ListedOffsets
	harness.Eventually(r.t, time.Minute, "a new topic has leaders", func(ctx context.Context) string {
		var err error
		if ends, err = r.admin.ListEndOffsets(ctx, topic); err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Addrs...), kgo.ConsumePartitions(ends.KOffsets()))
	if err != nil {
		r.t.Fatalf("make a consumer: %v", err)
	}
	return client
}

// receive notes when each event comes for the first time.
func (x *trace) receive(p pace, client *kgo.Client) error {
	left := p.total
	for left > 0 {
		fetches := client.PollFetches(context.Background())
		now := time.Since(x.base)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		var wrong error
		fetches.EachRecord(func(record *kgo.Record) {
			n, err := numberOf(harness.Header(record, "id"), p)
			if err != nil {
				wrong = err
			} else if x.out[n] == 0 {
				x.out[n] = now
				left--
			}
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// paceBareKafka measures produce -> received by franz-go, without a linger on either side.
func (r *run) paceBareKafka(p pace) latency {
	r.t.Helper()
	topic := r.kafka.Topic(r.t, "bare", r.partitions, nil)
	producer, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Addrs...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(0))
	if err != nil {
		r.t.Fatalf("make a producer: %v", err)
	}
	defer producer.Close()
	consumer := r.follower(topic)
	x := newTrace(p)
	value := make([]byte, r.payload)
	r.awaited("the bare consumer", func() error { return x.receive(p, consumer) }, consumer.Close, func() {
		failures := make(chan error, p.total)
		start := time.Now()
		for n := range p.total {
			p.wait(start, n-n%p.rows)
			id := idOf(p.from + n)
			text := fmt.Appendf(nil, "%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
			record := &kgo.Record{Key: fmt.Appendf(nil, "order-%d", n%r.keys), Value: value,
				Headers: []kgo.RecordHeader{{Key: "id", Value: text}}}
			x.done[n] = time.Since(x.base)
			producer.Produce(r.t.Context(), record, func(_ *kgo.Record, err error) { failures <- err })
		}
		var failed error
		for range p.total {
			failed = errors.Join(failed, <-failures)
		}
		if failed != nil {
			r.t.Fatalf("produce at a steady pace: %v", failed)
		}
	})
	return x.latency(p)
}

// paceRelay measures the relay and judges what was received.
func (r *run) paceRelay(p pace) (l latency, busy float64) {
	r.t.Helper()
	l, busy = r.paceProcess(p, r.relay.PID())
	r.judgePace(p)
	return l, busy
}

// judgePace judges what was received once everything is journaled.
func (r *run) judgePace(p pace) {
	r.t.Helper()
	r.poll(20*time.Millisecond, "everything is journaled", func() bool { return r.settled() >= p.total })
	r.judge()
}

// paceProcess measures COMMIT returned -> received by a consumer, and the share of a core that the process that relays
// needs for it.
func (r *run) paceProcess(p pace, pid int) (l latency, busy float64) {
	r.t.Helper()
	consumer := r.follower(r.topic)
	x := newTrace(p)
	read := func() error { return x.receive(p, consumer) }
	r.awaited("the consumer behind the relay", read, consumer.Close, func() {
		begun := time.Now()
		before, _ := processCPU(pid)
		r.write(p, "outbox_events", x)
		after, _ := processCPU(pid)
		busy = (after - before).Seconds() / time.Since(begun).Seconds()
	})
	return x.latency(p), busy
}
