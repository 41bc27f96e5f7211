package chaos

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	unrecorded = 1000            // limits.max_unrecorded: what a crash may double
	patience   = 5 * time.Minute // for anything; who waits so long has hung
	senderWait = 3 * time.Second // wal_sender_timeout: some faults last longer, some do not
)

// world is one Postgres, a Kafka, and two relays of one slot, with a wire in every way between them.
type world struct {
	t        *testing.T
	random   *rand.Rand
	pg       *harness.PG
	kafka    *harness.Cluster
	wire     *wire // the relays' way to Postgres
	settings harness.Settings
	relays   []*harness.Relay
	types    []string
	reading  *harness.Reading

	disturbing atomic.Pointer[[]cutproxy.Kind] // what the way to Kafka does; nil = nothing

	seen map[[16]byte]struct{} // ids in the topics, as far as they were read
}

func newWorld(t *testing.T, seed uint64, brokers int) *world {
	t.Helper()
	w := &world{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), types: []string{"order", "payment"}, seen: map[[16]byte]struct{}{},
	}
	w.pg = harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	proxy := cutproxy.New(w.policy())
	t.Cleanup(func() { _ = proxy.Close() })
	w.kafka = harness.NewOwnKafka(t, harness.KafkaConfig{Nodes: brokers, Proxy: proxy.Listen})
	port := strconv.Itoa(w.pg.Server.Port())
	var err error
	w.wire, err = newWire(net.JoinHostPort("127.0.0.1", port))
	check(t, err)
	t.Cleanup(func() { _ = w.wire.close() })
	_, wirePort, err := net.SplitHostPort(w.wire.address())
	check(t, err)
	w.settings = harness.NewSettings(t, w.pg, w.kafka.Proxied).With(
		"postgres.url", strings.Replace(w.pg.URL, ":"+port+"/", ":"+wirePort+"/", 1),
		"postgres.wal_sender_timeout", senderWait.String(), "postgres.status_interval", "500ms",
		"limits.max_unrecorded", unrecorded, "drift.interval", "2s", "reconcile.interval", "5s",
		"kafka.request_timeout", "3s", "log.level", "warn")
	for _, aggregateType := range w.types {
		w.kafka.CreateTopic(t, w.settings.Topic(aggregateType), 6, nil)
	}
	for range 2 {
		free, err := embedded.FreePort()
		check(t, err)
		w.relays = append(w.relays, harness.NewRelay(t,
			w.settings.With("http.listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(free)))))
	}
	w.relays[0].Init(t)
	w.startRelays()
	w.relays[0].WaitReady(t, patience)
	w.reading = harness.NewReading(w.kafka.Addrs, []string{w.settings.Topic("order"), w.settings.Topic("payment")})
	return w
}

func (w *world) publication() string { return w.settings["postgres.publication"].(string) }

// node is a broker that runs.
func (w *world) node() *harness.Node { return w.kafka.Nodes[w.random.IntN(len(w.kafka.Nodes))] }

// startRelays starts those that do not run.
func (w *world) startRelays() {
	for _, r := range w.relays {
		if r.PID() == 0 {
			r.Start(w.t)
		}
	}
}

// active is the relay that streams, or one of the two when none says so.
func (w *world) active() *harness.Relay {
	for _, r := range w.relays {
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
		n, err := r.AskMetric(ctx, "cdc_relay_role", `role="active"`)
		cancel()
		if err == nil && n == 1 {
			return r
		}
	}
	return w.relays[w.random.IntN(len(w.relays))]
}

// caughtUp waits until what is committed now is delivered, recorded and confirmed, and says how long that took. A relay
// that ended by itself is an error.
func (w *world) caughtUp() time.Duration {
	w.t.Helper()
	for _, r := range w.relays {
		if r.PID() == 0 {
			w.t.Fatal("a relay ended by itself")
		}
	}
	began := time.Now()
	w.pg.WaitConfirmed(w.t, w.settings.Slot(), patience)
	return time.Since(began)
}

// portion holds the records that have reached the topics.
type portion struct {
	duplicates int // ids that were there before
	late       int // records that say that the stream had left them out
}

// read reads what has come to the topics since it was called last.
func (w *world) read() (p portion) {
	w.t.Helper()
	w.reading.Read(w.t, func(r *kgo.Record) {
		id := idOf(w.t, r)
		if _, again := w.seen[id]; again {
			p.duplicates++
		}
		w.seen[id] = struct{}{}
		if harness.Header(r, "x-outbox-late") != nil {
			p.late++
		}
	})
	return p
}

func idOf(t *testing.T, r *kgo.Record) (id [16]byte) {
	t.Helper()
	text := strings.ReplaceAll(string(harness.Header(r, "id")), "-", "")
	if n, err := hex.Decode(id[:], []byte(text)); err != nil || n != len(id) {
		t.Fatalf("record %s/%d@%d: its id %q is not a uuid", r.Topic, r.Partition, r.Offset, text)
	}
	return id
}

// settled waits until every event of the truth up to now is journaled that is not older than since. The stream may have
// left some out while the table was not published: the relay finds them by itself. What is open now was perhaps written
// then, so it is waited for first.
func (w *world) settled(since time.Time) {
	w.t.Helper()
	// What is committed until a catch-up reads the table is published late as well.
	w.none("catch-ups under way", "SELECT count(*) FROM cdc_relay_state WHERE phase <> 'stream'")
	now := time.Now().UTC()
	w.none("transactions that were open",
		fmt.Sprintf(
			`SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start < '%s' AND
				application_name NOT LIKE 'cdc-relay/%%')
		+ (SELECT count(*) FROM pg_prepared_xacts WHERE prepared < '%[1]s')`, now.Format(time.RFC3339Nano)))
	w.none("events that are not journaled",
		fmt.Sprintf(`SELECT count(*) FROM truth t WHERE created_at BETWEEN '%s' AND '%s'
		AND NOT EXISTS (SELECT FROM cdc_relay_journal j WHERE j.event_id = t.id)`, since.UTC().Format(time.RFC3339Nano),
			time.Now().UTC().Format(time.RFC3339Nano)))
}

// none waits until the query counts nothing.
func (w *world) none(what, query string) {
	w.t.Helper()
	harness.Eventually(w.t, patience, "no "+what, func(ctx context.Context) string {
		left, err := w.pg.TryQuery(ctx, query)
		switch {
		case err != nil:
			return err.Error()
		case left != "0":
			return left + " " + what
		}
		return ""
	})
}

func (w *world) judge() verify.Report {
	w.t.Helper()
	return harness.Audit{PG: w.pg, Brokers: w.kafka.Addrs, Topic: w.settings.Topic,
		Journal: "cdc_relay_journal", Late: "faults that skip; each loop says which may"}.Judge(w.t)
}

// lasts is how long a fault lasts: some are over before anybody notices, some last longer than wal_sender_timeout.
func (w *world) lasts() time.Duration {
	return 100*time.Millisecond + time.Duration(w.random.Int64N(int64(senderWait+time.Second)))
}

func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}
