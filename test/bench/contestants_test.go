package bench

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// contestant is a program that relays the outbox of one run, as a process that is looked at from outside.
type contestant interface {
	start()   // and do not wait
	pid() int // 0 = it has ended
	stop()    // in order
	// recorded reports whether the program has written down, where it does so at all, that n events are published.
	recorded(n int) bool
}

// entry is a contestant of the comparison, by the name that figures have.
type entry struct {
	name  string
	enter func(r *run) contestant
}

const (
	relayName      = "relay"
	defaultName    = "Debezium, defaults"
	throughputName = "Debezium, tuned for throughput"
	latencyName    = "Debezium, tuned for latency"
	pollerName     = "polling worker"
)

// entries are those whose names are given.
func entries(names ...string) (chosen []entry) {
	for _, name := range names {
		e := entry{name: name}
		switch name {
		case relayName:
			e.enter = func(r *run) contestant { return relayContestant{r} }
		case pollerName:
			e.enter = enterPoller
		default:
			e.enter = func(r *run) contestant { return connectContestant{r, r.connect(debezium[name])} }
		}
		chosen = append(chosen, e)
	}
	return chosen
}

// relayContestant is the relay of the run with the slot that it made.
type relayContestant struct{ r *run }

func (c relayContestant) start()              { c.r.relay.Start(c.r.t) }
func (c relayContestant) pid() int            { return c.r.relay.PID() }
func (c relayContestant) stop()               { c.r.relay.Stop(c.r.t) }
func (c relayContestant) recorded(n int) bool { return c.r.settled() >= n }

// tuning holds Debezium's settings beyond those needed for the same work.
type tuning struct{ worker, connector map[string]string }

// debezium are its tunings. Those for throughput and for latency are the best that were found on two cores.
var debezium = map[string]tuning{
	defaultName: {},
	throughputName: {tunedWorker, with(tunedConnector, map[string]string{
		"poll.interval.ms": "20", "max.batch.size": "20000", "max.queue.size": "100000",
		"producer.override.linger.ms": "5", "producer.override.batch.size": "1000000",
		"producer.override.compression.type": "lz4",
	})},
	latencyName: {tunedWorker, with(tunedConnector, map[string]string{
		"poll.interval.ms": "2", "max.batch.size": "4096", "max.queue.size": "16384",
		"producer.override.linger.ms": "0", "producer.override.batch.size": "262144",
	})},
}

var (
	tunedWorker = map[string]string{
		"offset.flush.interval.ms":                "1000",
		"connector.client.config.override.policy": "All",
		"plugin.discovery":                        "hybrid_warn",
	}
	tunedConnector = map[string]string{
		"extended.headers.enabled":                                "false",
		"skipped.operations":                                      "u,d,t",
		"producer.override.acks":                                  "all",
		"producer.override.enable.idempotence":                    "true",
		"producer.override.max.in.flight.requests.per.connection": "5",
	}
)

func with(settings, further map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, further)
	return all
}

// connectContestant is a worker of Kafka Connect on the slot of the run, which the relay has made and left.
type connectContestant struct {
	r *run
	*harness.Connect
}

func (c connectContestant) start()            { c.Start(c.r.t) }
func (c connectContestant) pid() int          { return c.PID() }
func (c connectContestant) stop()             { c.Stop(c.r.t) }
func (c connectContestant) recorded(int) bool { return true } // the broker's acknowledgement is all

// connect makes a worker that does what the relay of the run does: the same rows, topic, keys and values, and the
// event's id and type as headers.
func (r *run) connect(tuned tuning) *harness.Connect {
	r.t.Helper()
	settings := harness.OutboxRouter(r.t, r.pg.URL, r.slot(), r.publication(),
		strings.TrimSuffix(r.topic, aggregateType)+"${routedByValue}")
	settings["transforms.outbox.table.fields.additional.placement"] = "event_type:header:event_type"
	return harness.NewConnect(r.t, harness.ConnectConfig{
		Brokers: r.kafka.Addrs, Worker: tuned.worker, Connector: with(settings, tuned.connector), HeapMiB: connectHeapMiB,
	})
}

const connectHeapMiB = 1024

// pollerContestant is a polling worker, which needs no slot.
type pollerContestant struct {
	r       *run
	orders  string
	process *child.Process
}

func enterPoller(r *run) contestant {
	r.exec("SELECT pg_drop_replication_slot($1)", r.slot())
	r.exec(pollerIndex)
	orders, err := json.Marshal(poller{URL: r.pg.URL, Brokers: r.kafka.Addrs, Topic: r.topic})
	if err != nil {
		r.t.Fatal(err)
	}
	c := &pollerContestant{r: r, orders: string(orders)}
	r.t.Cleanup(func() {
		if c.process != nil {
			c.process.Kill()
			if r.t.Failed() {
				r.t.Logf("the polling worker said: %s", c.process.LastWords())
			}
		}
	})
	return c
}

func (c *pollerContestant) start() {
	self, err := os.Executable()
	if err != nil {
		c.r.t.Fatal(err)
	}
	c.process, err = child.Start(child.Config{Path: self, Env: append(os.Environ(), pollerVariable+"="+c.orders),
		DeathSignal: syscall.SIGKILL})
	if err != nil {
		c.r.t.Fatalf("start the polling worker: %v", err)
	}
}

func (c *pollerContestant) pid() int {
	if c.process == nil || c.process.Ended() {
		return 0
	}
	return c.process.PID()
}

func (c *pollerContestant) stop() {
	c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.process.Done():
	case <-time.After(30 * time.Second):
		c.r.t.Fatal("the polling worker does not stop")
	}
	if code := c.process.ExitCode(); code != 0 {
		c.r.t.Fatalf("the polling worker ended with code %d", code)
	}
}

func (c *pollerContestant) recorded(int) bool {
	var left bool
	c.r.one("SELECT EXISTS (SELECT FROM outbox_events WHERE published_at IS NULL)", &left)
	return !left
}
