package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// peer is a program that relays the outbox of one run, as a process that is looked at from outside.
type peer interface {
	start()   // and do not wait
	pid() int // 0 = it has ended
	kill()    // kill -9, and wait for its end
	said() string
}

// The peers, in the order of the table.
const (
	relayName    = "cdc-relay"
	debeziumName = "Debezium"
	goPQName     = "go-pq-cdc-kafka"
	pollerName   = "polling worker"
	franzName    = "relay on franz-go"
)

var peerNames = []string{relayName, debeziumName, goPQName, pollerName, franzName}

// enter makes the peer of a run, and starts nothing. The outbox, the publication and the slot are there.
func enter(t *testing.T, w *world, name string) peer {
	t.Helper()
	switch name {
	case relayName:
		r := harness.NewRelay(t, w.peerSettings())
		return relayPeer{t, r}
	case debeziumName:
		return connectPeer{t, harness.NewConnect(t, w.connect(t))}
	case goPQName:
		binary, err := w.goPQ()
		if err != nil {
			t.Skipf("NOT MEASURED: %v", err)
		}
		return w.process(t, binary, name)
	case pollerName:
		w.pg.Exec(t, fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", w.settings.Slot()))
		w.pg.Exec(t, pollerIndex)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return w.process(t, self, name)
}

// relayPeer is the relay's binary with its defaults.
type relayPeer struct {
	t *testing.T
	*harness.Relay
}

func (p relayPeer) start()       { p.Start(p.t) }
func (p relayPeer) pid() int     { return p.PID() }
func (p relayPeer) kill()        { p.Kill9() }
func (p relayPeer) said() string { return lastBytes(p.Log(p.t)) }

// connectPeer is a worker of Kafka Connect with Debezium.
type connectPeer struct {
	t *testing.T
	*harness.Connect
}

func (p connectPeer) start()       { p.Start(p.t) }
func (p connectPeer) pid() int     { return p.PID() }
func (p connectPeer) kill()        { p.Kill9() }
func (p connectPeer) said() string { return p.LastWords() }

const connectHeapMiB = 1024

// connect is Debezium as make bench-debezium tunes it for latency: acknowledged by all replicas, idempotent, the
// position noted each second instead of each minute.
func (w *world) connect(t *testing.T) harness.ConnectConfig {
	t.Helper()
	connector := harness.OutboxRouter(t, w.url, w.settings.Slot(), w.publication(), w.settings.Topic("${routedByValue}"))
	maps.Copy(connector, map[string]string{
		"poll.interval.ms": "2", "max.batch.size": "4096", "max.queue.size": "16384",
		"extended.headers.enabled": "false", "skipped.operations": "u,d,t",
		"producer.override.acks": "all", "producer.override.enable.idempotence": "true",
		"producer.override.max.in.flight.requests.per.connection": "5", "producer.override.linger.ms": "0",
		"producer.override.batch.size":       "262144",
		"producer.override.max.request.size": fmt.Sprint(largestRecord),
	})
	return harness.ConnectConfig{
		Brokers: w.brokers, HeapMiB: connectHeapMiB, Connector: connector,
		Worker: map[string]string{
			"offset.flush.interval.ms": "1000", "connector.client.config.override.policy": "All",
			"plugin.discovery": "hybrid_warn",
		},
	}
}

// ordersVariable holds the orders of a process that is a peer.
const ordersVariable = "PEERS_ORDERS"

// orders configures a peer of ours.
type orders struct {
	Peer              string
	URL               string // of the database
	Brokers           []string
	Topic             string // what stands before the aggregate type
	Slot, Publication string
	MetricsPort       int
}

// obey is the process: it returns its exit code.
func obey(text string) int {
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		switch o.Peer {
		case pollerName:
			err = o.poll(ctx)
		case franzName:
			err = o.franz(ctx)
		default:
			err = fmt.Errorf("%q is no peer", o.Peer)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		return 1
	}
	return 0
}

// processPeer is a program that takes orders.
type processPeer struct {
	t       *testing.T
	config  child.Config
	process *child.Process // nil = never started
}

func (w *world) process(t *testing.T, binary, name string) *processPeer {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(orders{Peer: name, URL: w.url, Brokers: w.brokers, Topic: w.settings.Topic(""),
		Slot: w.settings.Slot(), Publication: w.publication(), MetricsPort: port})
	if err != nil {
		t.Fatal(err)
	}
	p := &processPeer{t: t, config: child.Config{Path: binary, DeathSignal: syscall.SIGKILL,
		Env: append(os.Environ(), ordersVariable+"="+string(text))}}
	t.Cleanup(p.kill)
	return p
}

func (p *processPeer) start() {
	process, err := child.Start(p.config)
	if err != nil {
		p.t.Errorf("start %s: %v", p.config.Path, err)
		return
	}
	p.process = process
}

func (p *processPeer) pid() int {
	if p.process == nil || p.process.Ended() {
		return 0
	}
	return p.process.PID()
}

func (p *processPeer) kill() {
	if p.process != nil {
		p.process.Kill()
	}
}

func (p *processPeer) said() string {
	if p.process == nil {
		return ""
	}
	return p.process.LastWords()
}

// buildGoPQ builds go-pq-cdc-kafka in a copy, as its program needs a module of its own, and no other is to know what
// that needs: without network access the other peers still work.
func buildGoPQ(dir string) (binary string, err error) {
	if *goPQFlag != "" {
		return *goPQFlag, nil
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "gopqcdc"))); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", "gopqcdc", "."}} {
		command := exec.Command("go", args...)
		command.Dir = dir
		if said, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s of go-pq-cdc-kafka: %w: %.2000s", args[0], err, said)
		}
	}
	return filepath.Join(dir, "gopqcdc"), nil
}

func lastBytes(text string) string { return strings.ToValidUTF8(text[max(0, len(text)-4000):], "") }
