package relay

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
)

// scraped is a relay that has connected to nothing, halted after it was active so that every metric is there, and what /metrics would show.
func scraped(t *testing.T) (*Relay, map[string]*dto.MetricFamily) {
	t.Helper()
	r := assemble(options{config: config.Default(), version: "1.2.3"})
	r.health.Enter(RoleActive)
	r.health.Halt(&halt.Error{Code: "column"})
	look := &slotLook{at: r.started}
	look.Exists, look.Confirmed, look.WALEnd = true, 1, 1
	r.metrics.slot.Store(look)
	r.metrics.lastPublished.Store(1)
	r.metrics.openDead.set(0)
	r.metrics.mirrorLag.set(0)
	r.metrics.published.WithLabelValues("a")
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			byName[f.GetName()] = f
		}
	}
	return r, byName
}

// Breaks it catches: a metric that is added, renamed, typed, labelled or described otherwise while docs/metrics.md is not (seen to
// fail with another help text, and with a counter defined as a gauge).
func TestMetricsPageIsWhatIsScraped(t *testing.T) {
	const path, begin, end = "../docs/metrics.md", "<!-- metrics: written by go test ./relay -run Metrics -rewrite -->\n", "<!-- end of metrics -->"
	r, families := scraped(t)
	for _, d := range r.metrics.defined {
		f := families[d.name]
		if f == nil {
			t.Errorf("%s is defined and not scraped", d.name)
			continue
		}
		delete(families, d.name)
		if kind := strings.ToLower(f.GetType().String()); kind != d.kind || f.GetHelp() != d.help {
			t.Errorf("%s: scraped as %s %q, defined as %s %q", d.name, kind, f.GetHelp(), d.kind, d.help)
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			want := slices.Sorted(slices.Values(append([]string{"service"}, d.labels...)))
			if !slices.Equal(labels, want) {
				t.Errorf("%s: labels %v, want %v", d.name, labels, want)
			}
		}
	}
	for name := range families {
		t.Errorf("%s is scraped and was not defined through the factory", name)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", path, begin, end)
	}
	want := metricTable(r.metrics.defined)
	if *rewrite {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("the metrics in %s (-want +got), go test ./relay -run Metrics -rewrite writes them:\n%s", path, diff)
	}
}

func metricTable(defined []definition) string {
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	sorted := slices.SortedFunc(slices.Values(defined), func(a, b definition) int { return cmp.Compare(a.name, b.name) })
	for _, d := range sorted {
		labels := ""
		if len(d.labels) > 0 {
			labels = "`" + strings.Join(d.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.name, d.kind, labels, strings.ReplaceAll(d.help, "|", `\|`))
	}
	return b.String()
}

// Breaks it catches: buckets that end before a slow outage or begin above a fast broker; a histogram that is classic or
// native only (seen to fail with 30 s as the last bucket, and without the native factor).
func TestLatencyHistogramsReachFromHalfAMillisecondToAMinute(t *testing.T) {
	r, _ := scraped(t)
	r.metrics.publishLatency.observe(3 * time.Millisecond)
	r.metrics.relayLatency.observe(3 * time.Millisecond)
	r.metrics.settleSeconds.Observe(.003)
	r.metrics.produceSeconds.Observe(.003)
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM || !strings.HasSuffix(f.GetName(), "_seconds") || strings.HasPrefix(f.GetName(), "go_") {
			continue
		}
		seen++
		h := f.GetMetric()[0].GetHistogram()
		buckets := h.GetBucket()
		if len(buckets) < 10 || buckets[0].GetUpperBound() != .0005 || buckets[len(buckets)-1].GetUpperBound() != 60 {
			t.Errorf("%s: classic buckets %v, want 0.5 ms to 60 s", f.GetName(), buckets)
		}
		if len(h.GetPositiveSpan()) == 0 || h.GetSchema() < 2 {
			t.Errorf("%s: no native histogram, or one coarser than 19 %% (schema %d)", f.GetName(), h.GetSchema())
		}
	}
	if seen < 4 {
		t.Errorf("latency histograms: got %d, want at least 4", seen)
	}
}

// Break it catches: a halt during which nothing is known to wait, though Postgres keeps WAL (seen to fail with the session's
// position only); a standby that tells what it does not know.
func TestLagIsTheSlotsWhileThereIsNoSession(t *testing.T) {
	r, _ := scraped(t) // halted
	look := &slotLook{at: time.Now()}
	look.Exists, look.Confirmed, look.WALEnd = true, 1000, 5000
	r.metrics.slot.Store(look)
	if got := r.Status(); got.LagBytes == nil || *got.LagBytes != 4000 || got.ConfirmedLSN == nil || *got.ConfirmedLSN != "0/3E8" {
		t.Errorf("halted: got %v bytes from %v, want 4000 from 0/3E8", got.LagBytes, got.ConfirmedLSN)
	}
	r.health.Enter(RoleStandby)
	if got := r.Status(); got.LagBytes != nil {
		t.Errorf("standing by: got %d bytes, want it unknown", *got.LagBytes)
	}
}

// Break it catches: a counter that begins with its first event, of which Prometheus sees no increase then; a series of a topic that is none.
// Seen to fail with no topic known, and with the literals of a template taken for a topic.
func TestFixedTopicIsCountedFromTheStart(t *testing.T) {
	for template, want := range map[string]string{"orders": "orders", "outbox.event.{aggregate_type}": "", "": ""} {
		c := config.Default()
		c.Message.Topic = template
		families, err := assemble(options{config: c}).Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "topic" && f.GetName() == "outbox_published_total" {
						got += l.GetValue()
					}
				}
			}
		}
		if got != want {
			t.Errorf("message.topic %q: outbox_published_total for the topic %q, want %q", template, got, want)
		}
	}
}
