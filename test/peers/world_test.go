package peers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const partitions = 6

// The aggregate types: the topic of the second is missing in one of the faults.
const (
	mainType   = "order"
	secondType = "payment"
)

// stage is shared by all runs: one broker, also behind a proxy.
type stage struct {
	kafka   *harness.Cluster
	proxies []*cutproxy.Plain
	goPQ    func() (binary string, err error) // built when it is asked for
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	st := &stage{goPQ: sync.OnceValues(func() (string, error) { return buildGoPQ(dir) })}
	st.kafka = harness.NewOwnKafka(t, harness.KafkaConfig{Fast: true, Proxy: func(target string) (string, error) {
		p := cutproxy.StartPlain(t, target)
		st.proxies = append(st.proxies, p)
		return p.Addr, nil
	}})
	return st
}

// world is where one peer meets one fault: a Postgres and topics of its own.
type world struct {
	*stage
	pg       *harness.PG
	settings harness.Settings // of the relay; the others take from it what they need
	url      string           // of the database, as the peer is told
	brokers  []string         // as the peer is told
	cuts     []*cutproxy.Plain
	admin    *kadm.Client

	mu     sync.Mutex
	topics []string // those that are made; guarded by mu
}

// newWorld makes the outbox, the publication and the slot as `cdc-relay init` does, for the peer under test. A peer
// whose connections are to be cut sees the servers by way of proxies.
func (st *stage) newWorld(t *testing.T, proxied bool) *world {
	t.Helper()
	w := &world{stage: st, brokers: st.kafka.Addrs, admin: st.kafka.Admin(t)}
	w.pg = harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"track_commit_timestamp": "on"}})
	w.url = w.pg.URL
	w.settings = harness.NewSettings(t, w.pg, w.brokers)
	harness.NewRelay(t, w.settings).Init(t)
	if proxied {
		w.viaProxies(t)
	}
	w.makeTopic(t, mainType)
	return w
}

func (w *world) viaProxies(t *testing.T) {
	t.Helper()
	at, err := url.Parse(w.pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := cutproxy.StartPlain(t, at.Host)
	at.Host = p.Addr
	w.url, w.brokers = at.String(), w.kafka.Proxied
	w.cuts = append(slices.Clone(w.proxies), p)
}

func (w *world) peerSettings() harness.Settings {
	return w.settings.With("postgres.url", w.url, "kafka.brokers", w.brokers)
}

func (w *world) publication() string { return w.settings["postgres.publication"].(string) }

// makeTopic makes the topic of an aggregate type. Its broker stamps the records, so that times do not depend on peers.
func (w *world) makeTopic(t *testing.T, aggregateType string) {
	t.Helper()
	topic := w.settings.Topic(aggregateType)
	w.kafka.CreateTopic(t, topic, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.topics = append(w.topics, topic)
}

func (w *world) made() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.topics)
}

// records is how many records the topics have, -1 when no broker says.
func (w *world) records(ctx context.Context) (n int) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ends, err := w.admin.ListEndOffsets(limited, w.made()...)
	if err != nil || ends.Error() != nil {
		return -1
	}
	ends.Each(func(end kadm.ListedOffset) { n += int(end.Offset) })
	return n
}

// arrivals are the records of all topics, as the judge wants them, without those of the given ids, and how many of
// these there are.
func (w *world) arrivals(t *testing.T, without ...string) (all []arrival, left int) {
	t.Helper()
	harness.Consume(t, w.kafka.Addrs, w.made(), func(r *kgo.Record) {
		a := arrived(r)
		if slices.Contains(without, a.ID) {
			left++
			return
		}
		all = append(all, a)
	})
	slices.SortFunc(all, byOffset)
	return all, left
}

// poison commits an event that is larger than the topic takes, of a key that others share, and returns its id and when.
// It is not in the truth.
func (w *world) poison(t *testing.T) (id string, at time.Time) {
	t.Helper()
	const insert = `WITH bad AS (INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
		SELECT gen_random_uuid(), '` + mainType + `', 'a1', 'poison', jsonb_build_object('pad', string_agg(md5(n::text), ''))
		FROM generate_series(1, 98304) n RETURNING id) SELECT id::text FROM bad`
	if err := w.pg.Connect(t).QueryRow(t.Context(), insert).Scan(&id); err != nil {
		t.Fatalf("commit a poison event: %v", err)
	}
	return id, time.Now()
}

// supervised is a peer that is started again a second after it has ended by itself, as a supervisor does it. It adds up
// the CPU of all its lives.
type supervised struct {
	done    chan struct{}
	watched sync.WaitGroup

	mu    sync.Mutex // guards what follows
	peer  peer
	gone  time.Duration // CPU of the lives that have ended
	now   time.Duration // of the present one, when it was last looked at
	ended int           // how often it ended by itself
	since time.Time     // of its end
	words string        // what it said at the first end
}

const restartAfter = time.Second

func supervise(t *testing.T, p peer) *supervised {
	s := &supervised{peer: p, done: make(chan struct{})}
	p.start()
	s.watched.Go(s.watch)
	t.Cleanup(s.stop)
	return s
}

func (s *supervised) watch() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.look()
		}
	}
}

func (s *supervised) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := s.peer.pid()
	switch {
	case pid != 0:
		s.now = max(s.now, harness.CPU(pid))
	case s.since.IsZero():
		s.since = time.Now()
		s.gone, s.now = s.gone+s.now, 0
		s.ended++
		if s.words == "" {
			s.words = s.peer.said()
		}
	case time.Since(s.since) > restartAfter:
		s.since = time.Time{}
		s.peer.start()
	}
}

// restart kills the peer and starts it at once.
func (s *supervised) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid := s.peer.pid(); pid != 0 {
		s.now = max(s.now, harness.CPU(pid))
	}
	s.peer.kill()
	s.gone, s.now, s.since = s.gone+s.now, 0, time.Time{}
	s.peer.start()
}

func (s *supervised) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer.said()
}

// used is the CPU that all its lives have used.
func (s *supervised) used() time.Duration {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone + s.now
}

func (s *supervised) stop() {
	select {
	case <-s.done:
		return
	default:
	}
	close(s.done)
	s.watched.Wait()
	s.peer.kill()
}

// treeCPU is that of a process and its living children.
func treeCPU(pid int) time.Duration {
	sum := harness.CPU(pid)
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(text)) {
		child, _ := strconv.Atoi(field)
		sum += harness.CPU(child)
	}
	return sum
}
