package inbox

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/prom"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// mood controls the handlers of a watched consumer; any goroutine sets it.
type mood struct {
	err   atomic.Pointer[error] // of one key in fifty; of each, if outage
	slow  atomic.Bool
	gated atomic.Pointer[chan struct{}] // handlers wait for its end
}

func (m *mood) handle(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
	if gate := m.gated.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.slow.Load() {
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.7)"); err != nil {
			return err
		}
	}
	if err := m.err.Load(); err != nil && (e.Payload.Seq%50 == 0 || *err == errAway) {
		return *err
	}
	return apply(ctx, tx, e)
}

func (m *mood) fail(err error) {
	if err == nil {
		m.err.Store(nil)
	} else {
		m.err.Store(&err)
	}
}

var errAway = inbox.Outage(errors.New("the ledger is away"))

// watched is a consumer that a real Prometheus scrapes.
type watched struct {
	t          *testing.T
	prometheus *harness.Prometheus
	kafka      *harness.Cluster
	pg         *harness.PG
	topic      string
	sent       int
	mood
}

func (w *watched) send(events int) {
	w.t.Helper()
	records := make([]*kgo.Record, events)
	for i := range records {
		records[i] = event(w.topic, w.sent, 500)
		w.sent++
	}
	produce(w.t, w.kafka.Addrs, records...)
}

// during sends events, one after the other, while what is in is called.
func (w *watched) during(in func()) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs...), kgo.ProducerLinger(0))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				client.Produce(ctx, event(w.topic, w.sent, 500), nil)
				w.sent++
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	in()
}

func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, kafka: ownKafka(t), pg: harness.Postgres(t)}
	w.topic = w.kafka.Topic(t, "order", 1, nil)
	w.pg.Exec(t, effects)
	metrics := prom.New()
	c, _ := start(t, newPool(t, w.pg.URL, 6), inbox.Config{
		Brokers: w.kafka.Addrs, Topics: []string{w.topic}, Metrics: metrics,
		IdleTimeout: 5 * time.Minute, HandlerTimeout: 5 * time.Minute,
		Client: []kgo.Opt{kgo.HeartbeatInterval(500 * time.Millisecond)},
		Retry:  inbox.Retry{MaxAttempts: 1 << 20, InitialBackoff: 50 * time.Millisecond, MaxBackoff: time.Second},
	}, func(c *inbox.Consumer) { inbox.On(c, "OrderPlaced", w.handle) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Of(c))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	w.prometheus = harness.StartPrometheusAt(t, hastened(t), "{service: billing}", server.URL)
	return w
}

var (
	ruleWindow  = regexp.MustCompile(`(\[|for: |offset )(\d+)m\b`)
	ruleSeconds = regexp.MustCompile(`(limit:inbox_heartbeat:seconds', expr: vector\()30\)`)
)

// hastened are the rules with every window a sixtieth: minutes become seconds; and with 3 s without a heartbeat. What
// is a rate, a share or a number of events stays as it is.
func hastened(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/inbox-rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := ruleSeconds.ReplaceAllString(ruleWindow.ReplaceAllString(string(text), "${1}${2}s"), "${1}3)")
	if strings.Count(rules, "vector(3)") != 1 {
		t.Fatal("the limit of heartbeats is not where it was")
	}
	return rules
}

// The real windows are proven by promtool; here a real Prometheus scrapes a real consumer, in states that are brought
// about. Breaks it catches: a metric that does not show what the alert is for, an alert that never fires or never ends.
// Seen to fail with retries that are compared with a time before the first one, which knows no number: the rule was so;
// and with a lag that is always 0.
func TestConsumersAlertsFireAndClearOnARealPrometheus(t *testing.T) {
	harness.Full(t)
	w := watch(t)
	w.during(func() {
		until(t, w.pg, "SELECT count(*) > 300 FROM effect", "true")
		w.prometheus.Quiet(w.t, "nothing fires while all is well")
	})

	gate := make(chan struct{})
	w.gated.Store(&gate)
	w.send(10_500)
	w.prometheus.Fires(w.t, "a lag, and workers without a rest", "InboxLag", "InboxBusy")
	w.gated.Store(nil)
	close(gate)
	w.prometheus.Quiet(w.t, "they clear when the lag is gone")

	w.slow.Store(true)
	w.during(func() { w.prometheus.Fires(w.t, "handlers that take 0.7 s", "InboxSlowHandler") })
	w.slow.Store(false)
	w.during(func() { w.prometheus.Quiet(w.t, "it clears when they are fast again") })

	w.fail(errors.New("no such customer"))
	w.during(func() { w.prometheus.Fires(w.t, "one key in fifty fails", "InboxErrors", "InboxRetriesGrowing") })
	w.fail(nil)
	w.during(func() { w.prometheus.Quiet(w.t, "they clear when none fails") })

	w.fail(errAway)
	w.during(func() { w.prometheus.Fires(w.t, "what the handlers need is away", "InboxBreakerOpen") })
	w.fail(nil)
	w.during(func() { w.prometheus.Quiet(w.t, "it clears when that is back") })

	w.fail(inbox.Permanent(errors.New("no such product")))
	w.send(100)
	w.prometheus.Fires(w.t, "dead letters", "InboxDeadLettersOpen")
	w.fail(nil)
	w.pg.Exec(t, "SELECT inbox_discard('billing', event_id, 'alice', 'a test') FROM inbox_dead")
	w.prometheus.Quiet(w.t, "it clears when each is decided")

	w.kafka.Nodes[0].Freeze()
	w.prometheus.Fires(w.t, "a coordinator that does not answer", "InboxNoHeartbeat")
	w.kafka.Nodes[0].Thaw()
	w.prometheus.Quiet(w.t, "it clears when it answers")

	until(t, w.pg, "SELECT count(*) FROM inbox_parked", "0")
	until(t, w.pg, "SELECT count(*) - count(DISTINCT event) FROM effect", "0")
}
