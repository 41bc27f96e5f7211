package test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// awaitReady waits until /readyz says the code of the relay of that name, and what is wanted.
func awaitReady(t *testing.T, d *harness.Directory, name string, want int, text string) {
	t.Helper()
	path := "/readyz?relay=" + name
	what := fmt.Sprintf("%s says %d with %q", path, want, text)
	harness.Eventually(t, time.Minute, what, func(ctx context.Context) string {
		code, body, err := d.Ask(ctx, path)
		if err != nil || code != want || !strings.Contains(body, text) {
			return fmt.Sprintf("got %d, %v: %.500s", code, err, body)
		}
		return ""
	})
}

// Three tenants have a relay each: two in a directory, one in a process of its own that moves there. Files come,
// change, are wrong and go while all of them write. Breaks it catches: an event that is lost or doubled by a restart or
// a move, a relay that is disturbed by another's file, a wrong file that stops a relay that runs.
func TestRelaysOfADirectoryLoseNothingWhenFilesChange(t *testing.T) {
	harness.Full(t)
	kafka := harness.Kafka(t)
	names := []string{"acme", "bolt", "core"}
	tenants := map[string]*scenario{}
	for _, name := range names {
		tenants[name] = newScenario(t, harness.Postgres(t), kafka)
		tenants[name].relay.Init(t)
	}
	acme, bolt, core := tenants["acme"], tenants["bolt"], tenants["core"]
	d := harness.NewDirectory(t)
	d.Put(t, "acme", acme.settings)
	d.Put(t, "bolt", bolt.settings)
	d.Start(t)
	core.start(t)
	loads := map[string]*harness.Load{}
	for _, name := range names {
		loads[name] = tenants[name].load(t, harness.Workload{Rate: 300})
	}
	awaitReady(t, d, "acme", http.StatusOK, `"active"`)
	awaitReady(t, d, "bolt", http.StatusOK, `"active"`)

	core.relay.Stop(t)
	d.Put(t, "core", core.settings)
	awaitReady(t, d, "core", http.StatusOK, `"active"`)
	starts := func(name string) string { return tenants[name].pg.Query(t, "SELECT epoch FROM cdc_relay_epoch") }
	untouched := starts("core")
	for n := range harness.Count(t, "changes of a relay's file") {
		before := starts("acme")
		d.Put(t, "acme", acme.settings.With("limits.in_flight_events", 10_000+n))
		harness.Eventually(t, time.Minute, "the changed relay has started again", func(context.Context) string {
			if now := starts("acme"); now == before {
				return "epoch " + now
			}
			return ""
		})
	}
	awaitReady(t, d, "acme", http.StatusOK, `"active"`)
	d.Write(t, "bolt", "postgres: {url: postgres://127.0.0.1/x}\nkafka: {broker: here}\n")
	awaitReady(t, d, "bolt", http.StatusOK, "bolt.yaml:2")
	if code, _ := d.Get(t, "/readyz?relay=bolt&degraded"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz?degraded of a relay with a wrong file: got %d, want 503", code)
	}
	loads["bolt"].WaitCommitted(t, 100, time.Minute)
	d.Remove(t, "bolt")
	awaitReady(t, d, "bolt", http.StatusNotFound, "no relay")
	loads["bolt"].WaitCommitted(t, 100, time.Minute)
	d.Put(t, "bolt", bolt.settings)
	awaitReady(t, d, "bolt", http.StatusOK, `"active"`)
	for _, name := range names {
		loads[name].Stop(t)
	}
	for _, name := range names {
		tenants[name].settled(t)
		tenants[name].judge(t, 0)
		want := float64(tenants[name].number(t, tenants[name].pg.Truth(t)))
		if got := d.Metric(t, "outbox_published_total", d.Label(name)); got <= 0 || got > want {
			t.Errorf("%s: got %v events published by the process, want some, and at most all %v", name, got, want)
		}
	}
	if now := starts("core"); now != untouched {
		t.Errorf("the relay whose file stayed: got epoch %s, want %s as before: it was restarted", now, untouched)
	}
	d.Stop(t)
}

// Breaks it catches: a relay without a broker, with a wrong file, with another's slot, or too large for the memory that
// holds up the others or takes the process away; a reason that no one is told; metrics of two relays taken for one.
func TestATroubledRelayLeavesTheOthersAlone(t *testing.T) {
	harness.Full(t)
	kafka := harness.Kafka(t)
	well := newScenario(t, harness.Postgres(t), kafka)
	well.relay.Init(t)
	away, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	lost := newScenario(t, harness.Postgres(t), kafka)
	lost.relay.Init(t)
	d := harness.NewDirectory(t, "--memory", "160MiB")
	d.Put(t, "a-well", well.settings)
	d.Put(t, "b-brokerless", lost.settings.With("kafka.brokers", []string{fmt.Sprintf("127.0.0.1:%d", away)}))
	d.Put(t, "c-second", well.settings.With("limits.in_flight_bytes", "8MiB"))
	d.Put(t, "d-large", lost.settings.With("postgres.slot", "other", "limits.in_flight_bytes", "80MiB"))
	d.Write(t, "e-wrong", "sink: nats\nhttp: {listen: 127.0.0.1:1}\npostgres: {url: postgres://x/y}\n"+
		"limits:\n  in_flight_byte: 1\n")
	d.Put(t, "f-exit", lost.settings.With("postgres.slot", "other", "on_halt", "exit"))
	d.Start(t)
	load := well.load(t, harness.Workload{Rate: 300})
	for name, why := range map[string]string{
		"b-brokerless": "broker", "c-second": "a-well.yaml", "d-large": "--memory = 160MiB",
		"e-wrong": "e-wrong.yaml:5): unknown key", "f-exit": "on_halt",
	} {
		awaitReady(t, d, name, http.StatusServiceUnavailable, why)
	}
	awaitReady(t, d, "e-wrong", http.StatusServiceUnavailable, "e-wrong.yaml:2): set for")
	awaitReady(t, d, "a-well", http.StatusOK, `"active"`)
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/readyz?degraded": 503, "/api/v1/status?relay=a-well": 200, "/api/v1/dlq": 400,
		"/api/v1/dlq?relay=a-well": 200, "/api/v1/dlq?relay=nobody": 404, "/api/v1/dlq?relay=e-wrong": 503,
		"/livez?relay=e-wrong": 200, "/": 200, "/?relay=a-well": 200, "/docs/": 200, "/metrics?relay=a-well": 200,
	} {
		if code, body := d.Get(t, path); code != want {
			t.Errorf("%s: got %d, want %d: %.200s", path, code, want, body)
		}
	}
	for _, name := range []string{"c-second", "d-large", "e-wrong", "f-exit"} {
		if d.Metric(t, "cdc_relay_halted", d.Label(name), `code="configuration"`) != 1 ||
			d.Metric(t, "cdc_relay_role", d.Label(name), `role="halted"`) != 1 {
			t.Errorf("%s: no cdc_relay_halted of configuration", name)
		}
	}
	if d.Metric(t, "cdc_relay_role", d.Label("a-well"), `role="active"`) != 1 {
		t.Error("a-well: no cdc_relay_role of active")
	}
	_, out, errs := d.Run(t, "status", "--http-listen", d.Settings["http.listen"].(string))
	for _, want := range []string{"RELAY", "a-well", "e-wrong: halted (configuration)", "to do: correct"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lists no %q:\n%s%s", want, out, errs)
		}
	}
	if _, out, errs := d.Run(t, "status", "--relay", "a-well"); !strings.Contains(out, "active") {
		t.Errorf("status --relay a-well: got %s%s", out, errs)
	}
	load.WaitCommitted(t, 1000, time.Minute)
	load.Stop(t)
	well.settled(t)
	well.judge(t, 0)
	d.Stop(t)
}
