package brokers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// disturbed is a broker with a topic that can be used and one that cannot, until it is repaired.
type disturbed struct {
	side
	brokers []string // of Kafka
	ruin    func(topic string)
	mend    func(topic string)
	// duplicates is how many there may be of what was in flight when the relay was killed.
	duplicates int
}

// oddHeaders mean something to one broker or another, or cannot be carried by it. Their events are published or dead.
var oddHeaders = []string{
	`{"CC": "a"}`, `{"x-death": "a"}`, `{"Nats-Msg-Id": "a"}`, `{"Status": "503"}`, `{"a": "1", "A": "2"}`, `{"a b": "c"}`,
	`{"a{b}": "c"}`, `{"a": "b\r\nInjected: 1"}`, `{"a": " b "}`, `{"Cookie": "a"}`, `{"x_outbox_source": "forged"}`,
	`{"ID": "mine"}`, `{"key": "a", "header:key": "b"}`, `{"": "a"}`, `{"日本": "a"}`, `{"x-stream-offset": "1"}`, `[1]`,
}

const (
	// ofATransaction events of one topic are committed together, each of another key. One of them is odd, each in turn.
	ofATransaction    = 10
	disturbedCommits  = 60
	unrecordedAtAKill = 150
)

// One topic is unusable, and one event of each transaction has an odd header, in each position in turn; in the middle
// the relay is killed. Breaks it catches, of each sink: a good event of the good topic that is late beside such ones,
// lost, out of order or there more often than its sink promises; a start that waits for the unusable topic; an event
// for that topic that is not parked, or not published in its order when the topic can be used.
func TestAnUnusableTopicAndOddHeadersHurtNothingElse(t *testing.T) {
	all := []string{"redis-stream", "rabbitmq", "nats", "kafka", "rabbitmq-stream", "bullmq", "webhook"}
	for _, sink := range all[:harness.Count(t, "sinks that are disturbed")] {
		t.Run(sink, func(t *testing.T) { judgeDisturbed(t, sink, disturbedStage(t, sink)) })
	}
}

func judgeDisturbed(t *testing.T, sink string, s disturbed) {
	t.Helper()
	pg := harness.Postgres(t)
	settings := harness.NewSettings(t, pg, s.brokers).With(s.settings(cmp.Or(s.relayAddr[1], s.direct))...).With(
		"limits.max_unrecorded", unrecordedAtAKill, "dlq.breaker.count", 100_000, "outbox.columns.headers", "headers")
	if s.brokers == nil {
		delete(settings, "kafka.brokers")
	}
	order, payment, invoice := settings.Topic("order"), settings.Topic("payment"), settings.Topic("invoice")
	s.begin(order)
	s.begin(payment)
	s.ruin(invoice)
	relay := harness.StartRelay(t, settings)
	w := &commits{t: t, conn: pg.Connect(t), pg: pg}
	late := func() float64 {
		calm, beside := w.late(false), w.late(true)
		t.Logf("%s: p99 of good events: %v, and %v beside an unusable topic and odd headers", sink, calm, beside)
		return float64(max(beside, 50*time.Millisecond)) / float64(max(calm, 50*time.Millisecond))
	}
	if harness.Count(t, "sinks that are timed so") == 0 {
		late()
	} else {
		wantUndisturbed(t, late)
	}
	w.commit(disturbedCommits/2, true)
	relay.Kill9()
	w.commit(disturbedCommits/2, true)
	relay.Start(t)
	w.awaitSettled()
	if parked := pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"); parked != fmt.Sprint(w.invoices) {
		t.Errorf("parked: got %s events, want the %d of the unusable topic", parked, w.invoices)
	}
	s.mend(invoice)
	if code, _, said := relay.Run(t, "retry", "now", "--all"); code != 0 {
		t.Fatalf("retry now: exit %d, %s", code, said)
	}
	harness.Eventually(t, time.Minute, "nothing is parked", func(context.Context) string {
		return strings.TrimPrefix(pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"), "0")
	})
	pg.WaitConfirmed(t, settings.Slot(), time.Minute)
	relay.Stop(t)
	t.Logf("dead letters: %s", pg.Query(t, `SELECT coalesce(string_agg(error_code || ' ' || n, ', '), 'none') FROM
		(SELECT error_code, count(*) n FROM outbox_events_dlq GROUP BY 1 ORDER BY 1) x`))
	if bad := pg.Query(t, `SELECT count(*) FROM outbox_events_dlq d JOIN outbox_events o ON o.id = d.original_id
		WHERE o.headers IS NULL`); bad != "0" {
		t.Errorf("dead letters of good events: got %s", bad)
	}
	var dead int
	if _, err := fmt.Sscan(pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"), &dead); err != nil {
		t.Fatal(err)
	}
	doubled := wantEach(t, s.read(order), w.orders-dead, s.duplicates)
	doubled += wantEach(t, s.read(payment), w.payments, s.duplicates-doubled)
	doubled += wantEach(t, s.read(invoice), w.invoices, s.duplicates-doubled)
	t.Logf("%s: %d events of three topics, %d dead, %d twice of at most %d", sink, w.orders+w.payments+w.invoices, dead,
		doubled, s.duplicates)
}

// wantUndisturbed checks that good events take at most 1.5 times as long beside bad ones: in the first turn or, on a
// machine that has other work, in the median of five.
func wantUndisturbed(t *testing.T, turn func() (ratio float64)) {
	t.Helper()
	const most, turns = 1.5, 5
	ratios := []float64{turn()}
	if ratios[0] <= most {
		return
	}
	for len(ratios) < turns {
		ratios = append(ratios, turn())
	}
	slices.Sort(ratios)
	if median := ratios[turns/2]; median > most {
		t.Errorf("p99 of good events beside bad ones: got %.2f times that without, want at most %.1f: %.2f", median, most,
			ratios)
	}
}

// commits writes transactions.
type commits struct {
	t    *testing.T
	conn *pgx.Conn
	pg   *harness.PG
	n    int // of transactions

	orders, payments, invoices int
}

// commit writes so many transactions of good events for order and as many for payment, or disturbed ones: one of order
// is odd, and the others are for invoice.
func (w *commits) commit(transactions int, disturbed bool) {
	w.t.Helper()
	for range transactions {
		odd, header, other := -1, "null", "payment"
		if disturbed {
			odd, header, other = w.n%ofATransaction, oddHeaders[w.n/ofATransaction%len(oddHeaders)], "invoice"
			w.invoices += ofATransaction
		} else {
			w.payments += ofATransaction
		}
		if _, err := w.conn.Exec(w.t.Context(), `INSERT INTO outbox_events
			(id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
			SELECT gen_random_uuid(), kind, 'key-' || i, 'changed', jsonb_build_object('n', $1::int * 1000 + i),
				CASE WHEN kind = 'order' AND i = $2 THEN $3::text::jsonb END, clock_timestamp()
			FROM generate_series(0, $4::int - 1) i, unnest(ARRAY[$5::text, 'order']) kind
			ORDER BY i, kind`, w.n+1, odd, header, ofATransaction, other); err != nil {
			w.t.Fatal(err)
		}
		w.orders += ofATransaction
		w.n++
	}
}

// late is the 99th percentile of how long good events of order took from the insert to the journal.
func (w *commits) late(disturbed bool) time.Duration {
	w.t.Helper()
	first := w.n + 1
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for range disturbedCommits {
		w.commit(1, disturbed)
		<-ticks.C
	}
	w.awaitSettled()
	var took []time.Duration
	for _, text := range strings.Fields(w.pg.Query(w.t, fmt.Sprintf(`SELECT string_agg((extract(epoch FROM
		j.published_at - o.created_at) * 1000000)::bigint::text, ' ') FROM outbox_events o JOIN cdc_relay_journal j
		ON j.event_id = o.id WHERE o.aggregate_type = 'order' AND o.headers IS NULL
		AND (o.payload->>'n')::int >= %d`, first*1000))) {
		var micros int64
		if _, err := fmt.Sscan(text, &micros); err != nil {
			w.t.Fatal(err)
		}
		took = append(took, time.Duration(micros)*time.Microsecond)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// awaitSettled waits until each event of a good topic is published or dead, and each of invoice parked.
func (w *commits) awaitSettled() {
	w.t.Helper()
	want := fmt.Sprint(w.orders+w.payments, " ", w.invoices)
	harness.Eventually(w.t, time.Minute, "all events are settled or parked", func(context.Context) string {
		got := w.pg.Query(w.t, `SELECT (SELECT count(*) FROM cdc_relay_journal) + (SELECT count(*) FROM outbox_events_dlq)
			|| ' ' || (SELECT count(*) FROM cdc_relay_parked)`)
		if got != want {
			return fmt.Sprintf("got %s, want %s", got, want)
		}
		return ""
	})
}

// disturbedStage is the sink's broker, whose topics are missing at first, if it does not make them by itself.
func disturbedStage(t *testing.T, sink string) (d disturbed) {
	t.Helper()
	switch sink {
	case "kafka":
		k := harness.Kafka(t)
		d.brokers = k.Addrs
		d.settings = func(string) []any { return nil }
		d.begin = func(topic string) { k.CreateTopic(t, topic, 3, nil) }
		d.read = func(topic string) (found []message) {
			harness.Consume(t, k.Addrs, []string{topic}, func(r *kgo.Record) {
				m := message{key: string(r.Key), payload: r.Value}
				for _, h := range r.Headers {
					if h.Key == "id" {
						m.id = string(h.Value)
					}
				}
				found = append(found, m)
			})
			return found
		}
	case "webhook":
		return disturbedReceiver(t)
	default:
		d.side = stage(t, sink)
	}
	d.ruin, d.mend = func(string) {}, d.begin
	switch sink {
	case "rabbitmq":
		d.duplicates = unrecordedAtAKill
	case "redis-stream", "bullmq":
		reader := redis.NewClient(&redis.Options{Addr: d.direct, Protocol: 2})
		t.Cleanup(func() { _ = reader.Close() })
		name := func(topic string) string { return topic }
		if sink == "bullmq" {
			name = func(topic string) string { return "bull:" + topic + ":wait" }
			was := d.settings
			d.settings = func(addr string) []any { return append(was(addr), "bullmq.data", "event") }
			d.read = func(topic string) []message { return waitingEvents(t, reader, topic) }
		}
		d.ruin = func(topic string) {
			if err := reader.Set(t.Context(), name(topic), "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		d.mend = func(topic string) {
			if err := reader.Del(t.Context(), name(topic)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}

// disturbedReceiver answers 404 for what is ruined.
func disturbedReceiver(t *testing.T) (d disturbed) {
	t.Helper()
	ruined := make(chan string, 1) // holds the topic that is ruined, if any
	receiver := harness.NewReceiver(t, func(w http.ResponseWriter, delivery harness.Delivery) {
		status := http.StatusOK
		select {
		case topic := <-ruined:
			if strings.HasSuffix(delivery.Path, topic) {
				status = http.StatusNotFound
			}
			ruined <- topic
		default:
		}
		w.WriteHeader(status)
	})
	d.direct, d.duplicates = receiver.Addr, unrecordedAtAKill
	d.settings = func(addr string) []any { return forWebhooks(t, addr) }
	d.begin = func(string) {}
	d.ruin = func(topic string) { ruined <- topic }
	d.mend = func(string) { <-ruined }
	d.read = func(topic string) []message { return bodies(t, receiver.Deliveries("/hooks/"+topic)) }
	return d
}

// waitingEvents are the jobs of a queue that have whole events.
func waitingEvents(t *testing.T, reader *redis.Client, queue string) (found []message) {
	for _, job := range waiting(t, reader, queue) {
		var event struct {
			ID      string
			Key     string `json:"aggregate_id"`
			Payload json.RawMessage
		}
		if err := json.Unmarshal(job.payload, &event); err != nil {
			t.Fatalf("job %s: %v", job.payload, err)
		}
		found = append(found, message{id: event.ID, key: event.Key, payload: event.Payload})
	}
	return found
}
