package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// stage is the servers that all runs share.
type stage struct {
	options
	server *harness.PG // its database is used for nothing but making others
	kafka  *harness.Cluster
	guard  *guard // nil where nothing is encrypted
	filled string // the database that has a long journal, where one is wanted
}

// newStage starts the servers.
func newStage(t *testing.T, o options) *stage {
	g := o.newGuard(t)
	st := &stage{
		options: o,
		server:  harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: o.postgres}),
		kafka:   harness.NewOwnKafka(t, g.kafka(t, harness.KafkaConfig{Fast: true, HeapMiB: 1024})),
		guard:   g,
	}
	g.postgres(t, st.server)
	st.warmUp(t)
	return st
}

// result begins a report.
func (st *stage) result(t *testing.T) *result {
	r := &result{
		When: time.Now(), Commit: commit(), Machine: thisMachine(), Kafka: "4.3.0, one broker, 1 GB heap",
		Postgres: map[string]string{},
		Relay:    strings.TrimSpace(fmt.Sprintln(st.relaySettings...)), Load: []string{harness.LoadAverage()},
	}
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size",
		"checkpoint_timeout", "wal_level"} {
		r.Postgres[name] = st.server.Query(t, "SELECT current_setting('"+name+"')")
	}
	return r
}

// measure runs what the options say, and always returns what it has.
func measure(t *testing.T, o options) *result {
	st := newStage(t, o)
	r := st.result(t)
	for _, name := range o.scenarios {
		if d, found := o.drain(name); found {
			st.with(d.shape).drains(t, r, d)
			continue
		}
		if name == atPace {
			st.costs(t, r)
			continue
		}
		st.paces(t, r)
	}
	r.Load = append(r.Load, harness.LoadAverage())
	return r
}

// repeat runs one scenario as often as wanted, each run as a subtest, and collects the runs that did not fail.
func (st *stage) repeat(t *testing.T, r *result, name, what string, once func(*testing.T) []sample) {
	var good [][]sample
	failed := 0
	for n := range st.runs {
		var samples []sample
		if t.Run(fmt.Sprintf("%s/%d", name, n+1), func(t *testing.T) { samples = once(t) }) {
			good = append(good, samples)
		} else {
			failed++
		}
	}
	r.add(name, what, good, failed)
}

const aggregateType = "order"

// run holds a run's own database, topic and relay.
type run struct {
	*stage
	t       *testing.T
	variant variant
	pg      *harness.PG
	relay   *harness.Relay
	topic   string // the only one, where there is one
	truth   string // table that has every event, also when the relay has deleted its row
	conn    *pgx.Conn
	admin   *kadm.Client
	api     *http.Client

	patience time.Duration // more than anything here should take
}

// newRun makes the outbox, the topic and the slot, and lets the relay finish its first start.
func (st *stage) newRun(t *testing.T, v variant) *run {
	st = st.of(v)
	name := harness.Unique(t, "bench")
	st.create(t, name)
	pg := &harness.PG{Server: st.server.Server, Database: name, URL: st.server.Server.URL(name)}
	t.Cleanup(func() { st.drop(t, name) })
	settings := harness.NewSettings(t, pg, st.kafka.Addrs).With("outbox.after_publish",
		st.afterPublish).With(st.relaySettings...).With(st.guard.settings(t, v, st.kafka, pg.URL)...)
	r := &run{
		stage: st, t: t, variant: v, pg: pg, topic: settings.Topic(aggregateType), truth: "outbox_events",
		admin: st.kafka.Admin(t), api: &http.Client{Timeout: 5 * time.Second}, patience: 3 * time.Minute,
	}
	t.Cleanup(r.api.CloseIdleConnections)
	// The broker's clock on each record: no consumer has to run beside the relay to time it.
	if v.binary == "" {
		r.relay = harness.NewRelay(t, settings)
	} else {
		r.relay = harness.NewRelayOf(t, settings, v.binary)
	}
	for _, topic := range r.topics() {
		st.kafka.CreateTopic(t, topic, st.partitions, map[string]string{"message.timestamp.type": "LogAppendTime"})
	}
	r.relay.Begin(t)
	r.conn = pg.Connect(t)
	if st.randomIDs {
		r.exec("ALTER TABLE outbox_events ALTER id SET DEFAULT gen_random_uuid()")
	}
	r.steady()
	r.checkGuarded()
	return r
}

// drop removes a run's database with its slots.
func (st *stage) drop(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, st.server.URL)
	if err != nil {
		t.Errorf("drop %s: %v", name, err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{
		"SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE database = '" + name + "' AND active",
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '" + name + "'",
		"DROP DATABASE " + name + " WITH (FORCE)",
		"CHECKPOINT", // the WAL goes, too
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Errorf("drop %s: %v", name, err)
		}
	}
}

// topics are those of the events: bench.Load says what the types are called.
func (r *run) topics() (all []string) {
	if r.types <= 1 {
		return []string{r.topic}
	}
	for n := range r.types {
		all = append(all, r.relay.Settings.Topic(fmt.Sprintf("%s-%d", aggregateType, n)))
	}
	return all
}

func (r *run) slot() string        { return r.relay.Settings.Slot() }
func (r *run) publication() string { return r.relay.Settings["postgres.publication"].(string) }

func (r *run) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%.200s: %v", sql, err)
	}
}

func (r *run) one(sql string, into any, args ...any) {
	r.t.Helper()
	if err := r.conn.QueryRow(r.t.Context(), sql, args...).Scan(into); err != nil {
		r.t.Fatalf("%.200s: %v", sql, err)
	}
}

func (r *run) walEnd() uint64 {
	r.t.Helper()
	var text string
	r.one("SELECT pg_current_wal_insert_lsn()::text", &text)
	lsn, err := outbox.ParseLSN(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return uint64(lsn)
}

// cost returns the resource usage so far.
func (r *run) cost() cost {
	r.t.Helper()
	c := cost{at: time.Now(), wal: r.walEnd()}
	c.relay, _ = processCPU(r.relay.PID())
	c.postgres = readPostgresCPU(r.t, r.pg.Server.PID())
	c.kafka, _ = processCPU(r.kafka.Nodes[0].PID())
	return c
}

// status is the relay's status by its API.
type status struct {
	Role      string `json:"role"`
	LookingUp bool   `json:"looking_up"`
	Settled   int    `json:"events_settled_total"` // since it was started
	Spooled   int    `json:"spooled_events"`       // 0 also where it is not known
}

// status asks the relay; the zero value when it does not listen yet.
func (r *run) status() (s status) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.relay.URL+"/api/v1/status", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := r.api.Do(request)
	if err != nil {
		return s
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		r.t.Fatalf("read the relay's status: %v", err)
	}
	return s
}

func (r *run) settled() int { return r.status().Settled }

// steady waits until the relay streams and looks nothing up any more.
func (r *run) steady() {
	r.t.Helper()
	r.poll(20*time.Millisecond, "the relay streams", func() bool {
		s := r.status()
		return s.Role == "active" && !s.LookingUp
	})
}

// poll asks until done says so, and fails when it has no patience left.
func (r *run) poll(every time.Duration, what string, done func() bool) time.Time {
	r.t.Helper()
	limit := time.After(r.patience)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for !done() {
		if r.relay.PID() == 0 {
			r.t.Fatalf("%s: the relay has ended", what)
		}
		select {
		case <-ticker.C:
		case <-limit:
			r.t.Fatalf("%s: not within %v", what, r.patience)
		case <-r.t.Context().Done():
			r.t.Fatal(r.t.Context().Err())
		}
	}
	return time.Now()
}

// warmUp produces and consumes records until the broker's JVM has compiled its hot paths: a tenth of them in many small
// requests, as at a low pace, the rest in large ones.
func (st *stage) warmUp(t *testing.T) {
	topic := st.kafka.Topic(t, "warm", st.partitions, nil)
	follower := harness.Follow(t, st.kafka.Addrs, []string{topic}, func(*kgo.Record) {})
	small := st.kafkaWarmUp / 10
	for _, part := range []struct{ records, buffered int }{{small, 2 * st.partitions}, {st.kafkaWarmUp - small, 10_000}} {
		if err := produceAll(t.Context(), st.kafka.Addrs, topic, part.records, part.buffered, st.payload); err != nil {
			t.Fatalf("warm up Kafka: %v", err)
		}
	}
	harness.Eventually(t, time.Minute, "Kafka is warm", func(context.Context) string {
		if got := follower.Count(); got != st.kafkaWarmUp {
			return fmt.Sprintf("got %d records, want %d", got, st.kafkaWarmUp)
		}
		return ""
	})
}

// produceAll produces records with at most so many of them unacknowledged.
func produceAll(ctx context.Context, addrs []string, topic string, records, buffered, size int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(buffered))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	value := make([]byte, size)
	failures := make(chan error, 1)
	for n := range records {
		client.Produce(ctx, &kgo.Record{Key: strconv.AppendInt(nil, int64(n), 10), Value: value},
			func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failures <- err:
					default:
					}
				}
			})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	select {
	case err := <-failures:
		return fmt.Errorf("produce: %w", err)
	default:
		return nil
	}
}
