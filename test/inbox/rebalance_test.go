package inbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var protocols = map[string]bool{"classic": false, "consumer": true}

// tally counts what consumers tell of.
type tally struct{ redelivered, rebalances atomic.Int64 }

func (*tally) Processed(string, string)   {}
func (*tally) Took(string, time.Duration) {}
func (*tally) EndToEnd(time.Duration)     {}
func (*tally) Retried(string)             {}
func (*tally) HandlerNotFound()           {}
func (t *tally) Redelivered()             { t.redelivered.Add(1) }
func (*tally) LockWait()                  {}
func (t *tally) Rebalanced(string)        { t.rebalances.Add(1) }

// group is consumers of one group, all in this process.
type group struct {
	t       *testing.T
	pg      *harness.PG
	addrs   []string
	topic   string
	config  inbox.Config
	counts  tally
	members []func() // their ends
}

const groupPartitions = 12

func newGroup(t *testing.T, kafka *harness.Cluster, protocol bool) *group {
	t.Helper()
	g := &group{t: t, pg: harness.Postgres(t), addrs: kafka.Addrs, topic: kafka.Topic(t, "order", groupPartitions, nil)}
	g.pg.Exec(t, effects)
	options := []kgo.Opt{kgo.HeartbeatInterval(500 * time.Millisecond)}
	if !protocol {
		options = append(options, kgo.SessionTimeout(10*time.Second))
	}
	g.config = inbox.Config{Name: harness.Unique(t, "billing"), Brokers: g.addrs, Topics: []string{g.topic},
		ConsumerProtocol: protocol, Client: options, MaxEvents: 3000, Metrics: &g.counts}
	return g
}

func (g *group) join() {
	pool := newPool(g.t, g.pg.URL, 4)
	_, stop := start(g.t, pool, g.config, onOrder)
	g.members = append(g.members, func() { stop(); pool.Close() })
}

func (g *group) leave(n int) {
	g.members[n]()
	g.members = append(g.members[:n], g.members[n+1:]...)
}

// decided is how many events are behind the offsets that the database has.
func (g *group) decided(ctx context.Context) int {
	text, err := g.pg.TryQuery(ctx, "SELECT coalesce(sum(next_offset), 0) FROM inbox_offset")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(text)
	return n
}

// feed keeps some seconds' events waiting until the context ends, and says how many it has sent.
func (g *group) feed(ctx context.Context) chan int {
	client, err := kgo.NewClient(kgo.SeedBrokers(g.addrs...))
	if err != nil {
		g.t.Fatal(err)
	}
	sent, backlog := make(chan int, 1), count(5_000, 20_000)
	go func() {
		defer client.Close()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			for end := g.decided(ctx) + backlog; n < end && ctx.Err() == nil; n++ {
				client.Produce(context.WithoutCancel(ctx), event(g.topic, n, 500), func(_ *kgo.Record, err error) {
					if err != nil {
						g.t.Errorf("produce: %v", err)
					}
				})
			}
			select {
			case <-ctx.Done():
				if err := client.Flush(context.WithoutCancel(ctx)); err != nil {
					g.t.Errorf("produce: %v", err)
				}
				sent <- n
				return
			case <-tick.C:
			}
		}
	}()
	return sent
}

// rate lets a time pass, doing what is to be done every two seconds, and says how many events a second were decided.
func (g *group) rate(d time.Duration, do func()) float64 {
	before, began := g.decided(g.t.Context()), time.Now()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for time.Since(began) < d {
		<-tick.C
		do()
	}
	return float64(g.decided(g.t.Context())-before) / time.Since(began).Seconds()
}

// A member joins or leaves every two seconds, under load: no event is lost, doubled or out of order, and half of what a
// quiet group does is done. CI does not hold it to that: its machine has other work. Seen to fail with
// offsets that pass what is read and not decided.
func TestARebalanceStormLosesDoublesAndDisordersNothing(t *testing.T) {
	harness.Full(t)
	kafka := ownKafka(t)
	storm := time.Duration(count(16, 1800)) * time.Second
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, kafka, protocol)
			for range 3 {
				g.join()
			}
			ctx, cancel := context.WithCancel(t.Context())
			sent := g.feed(ctx)
			harness.Eventually(t, time.Minute, "the group works", func(ctx context.Context) string {
				if n := g.decided(ctx); n < 3000 {
					return fmt.Sprint(n)
				}
				return ""
			})
			quiet := g.rate(storm/6, func() {})
			stormy := g.rate(storm, func() {
				if n := len(g.members); n == 1 || n < 5 && rand.IntN(2) == 0 {
					g.join()
				} else {
					g.leave(rand.IntN(n))
				}
			})
			cancel()
			events := <-sent
			until(t, g.pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(events))
			for len(g.members) > 0 {
				g.leave(0)
			}
			judge(t, g.pg, events)
			t.Logf("%d events, %d rebalances of members; quiet %.0f events/s, in the storm %.0f; %d delivered again", events,
				g.counts.rebalances.Load(), quiet, stormy, g.counts.redelivered.Load())
			if count(0, 1) == 1 && stormy < quiet/2 {
				t.Errorf("events a second in the storm: got %.0f, want at least half of %.0f", stormy, quiet)
			}
		})
	}
}

// Three members are stopped in good order and started again, one after another, under load: no event is delivered to a
// second one. Seen to fail with a stop that leaves gaps below what it has done: 2,011 of 55,580 came again; and, on a
// machine with five times as much to do, with five seconds for them: 1,934 of 50,214.
func TestARollingRestartDeliversNothingTwice(t *testing.T) {
	harness.Full(t)
	kafka, between := ownKafka(t), count(1000, 2000)
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, kafka, protocol)
			for range 3 {
				g.join()
			}
			ctx, cancel := context.WithCancel(t.Context())
			sent := g.feed(ctx)
			goesOn := func() {
				t.Helper()
				before := g.decided(t.Context())
				harness.Eventually(t, time.Minute, "the group goes on", func(ctx context.Context) string {
					if n := g.decided(ctx); n < before+between {
						return fmt.Sprint(n - before)
					}
					return ""
				})
			}
			for range count(1, 20) {
				for range 3 {
					goesOn()
					g.leave(0)
					goesOn()
					g.join()
				}
			}
			cancel()
			events := <-sent
			until(t, g.pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(events))
			for len(g.members) > 0 {
				g.leave(0)
			}
			judge(t, g.pg, events)
			if again := g.counts.redelivered.Load(); again != 0 {
				t.Errorf("events delivered again: got %d of %d, want none", again, events)
			}
		})
	}
}
