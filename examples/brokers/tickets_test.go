package brokers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// worker is a consumer of the exchange tickets, with a database of its own.
type worker struct {
	program
	own *harness.PG
}

// Two consumers of one exchange, from the table to what each of them did: notifications gets tickets, metrics gets
// everything. One event is such that each fails at it. The pauses are short in CI, and 1, 5 and 15 minutes at night.
// Breaks it catches: an event that a consumer lacks, has twice, or is not bound with; an event that fails and is lost,
// comes back too early or too often, or reaches the other consumer again; a dead letter that no metric counts, or that
// lost its content type; a worker without a heartbeat. Seen to fail with one retry queue in place of three, and with
// the heartbeat left out.
func TestTicketsFromTableToWorkers(t *testing.T) {
	harness.Full(t)
	unit := time.Duration(harness.Count(t, "retries of tickets, ms")) * time.Millisecond
	pauses := []time.Duration{unit, 5 * unit, 15 * unit}
	var retries []string
	for _, p := range pauses { // as the relay writes them: 1m, not 1m0s
		if p%time.Minute == 0 {
			retries = append(retries, fmt.Sprintf("%dm", p/time.Minute))
		} else {
			retries = append(retries, fmt.Sprintf("%dms", p.Milliseconds()))
		}
	}
	server := harness.RabbitMQ(t)
	url := "amqp://guest:guest@" + server.Addr + "/"
	pg := harness.Postgres(t)
	list := strings.Join(retries, ", ")
	settings := harness.NewSettings(t, pg, nil).With("sink", "rabbitmq", "rabbitmq.url", url, "message.topic", "tickets",
		"rabbitmq.routing_key", "{event_type}", "rabbitmq.consumers", fmt.Sprintf(
			`{notifications: {bind: ["ticket.*"], retry: [%s]}, metrics: {retry: [%s]}}`, list, list))
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	relay := harness.NewRelay(t, settings)
	relay.Init(t)
	if code, _, said := relay.Run(t, "init", "--rabbitmq-topology"); code != 0 {
		t.Fatalf("init --rabbitmq-topology: exit code %d: %s", code, said)
	}
	relay.Start(t)
	relay.WaitReady(t, time.Minute)

	path := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./rabbitmq")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rabbitmq: %v: %s", err, said)
	}
	workers := map[string]*worker{}
	for _, name := range []string{"notifications", "metrics"} {
		w := &worker{own: harness.Postgres(t)}
		w.path, w.environ = path, []string{"RABBITMQ_URL=" + url, "CONSUMER=" + name, "HEARTBEAT=100ms",
			"RETRIES=" + strings.Join(retries, ","), "DATABASE_URL=" + w.own.URL}
		w.start(t)
		t.Cleanup(func() {
			w.stop(syscall.SIGKILL)
			if t.Failed() {
				t.Logf("%s said:\n%s", name, &w.log)
			}
		})
		workers[name] = w
	}
	const tickets, users = 300, 100
	began := time.Now()
	pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'ticket', (i %% 20)::text, CASE WHEN i %% 2 = 0 THEN 'ticket.opened' ELSE 'ticket.closed' END,
			CASE i WHEN 7 THEN jsonb '{"customer": 7}' ELSE jsonb_build_object('customer', 'c' || i %% 7) END
		FROM generate_series(1, %d) i;
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'user', i::text, 'user.created', jsonb_build_object('customer', 'u') FROM generate_series(1, %d) i`,
		tickets, users))
	handled(t, workers["notifications"].own, "processed_event_ids", tickets-1)
	handled(t, workers["metrics"].own, "processed_event_ids", tickets+users-1)

	conn, channel := dial(t, url)
	defer conn.Close()
	for name := range workers {
		harness.Eventually(t, 2*time.Minute+21*unit, name+" has a dead letter", func(ctx context.Context) string {
			n, err := relay.AskMetric(ctx, "mq_dlq_total", fmt.Sprintf("consumer=%q", name))
			if err != nil || n != 1 {
				return fmt.Sprint(n, err)
			}
			return ""
		})
		d, found, err := channel.Get(name+".dlq", true)
		if err != nil || !found || d.ContentType != "application/json" || string(d.Body) != `{"customer": 7}` ||
			d.Headers["x-retries"] != int32(4) || d.Type != "ticket.closed" {
			t.Errorf("dead letter of %s: got %t, %v, %s %q with %v", name, found, err, d.ContentType, d.Body, d.Headers)
		}
		if took := time.Since(began); took < 21*unit {
			t.Errorf("%s gave up after %v, want all pauses of %v in between", name, took, pauses)
		}
	}
	for name, want := range map[string]int{"notifications": tickets - 1, "metrics": tickets + users - 1} {
		w := workers[name]
		w.stop(syscall.SIGTERM)
		if got := w.own.Query(t, "SELECT sum(orders) FROM orders_of_customer"); got != fmt.Sprint(want) {
			t.Errorf("%s: got %s effects, want %d", name, got, want)
		}
		if !strings.Contains(w.log.String(), "alive: queue "+name+", ") {
			t.Errorf("%s: there is no heartbeat in its log", name)
		}
		if tries := strings.Count(w.log.String(), "cannot unmarshal"); tries != 4 {
			t.Errorf("%s: got %d attempts at the event that fails, want 4", name, tries)
		}
	}
	relay.Stop(t)
}
