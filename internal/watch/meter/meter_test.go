package meter

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/sink"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// played is a relay described by its fields.
type played struct {
	inFlight int
	parked   int64
	sink     sink.Status
	session  *Session
	unread   bool // the database was not asked yet
}

func (p *played) InFlight() int             { return p.inFlight }
func (p *played) Parked() int64             { return p.parked }
func (p *played) Sink() sink.Status         { return p.sink }
func (p *played) Alarms(string) (int, bool) { return 0, !p.unread }

func (p *played) Degraded(reason string) (degraded, known bool) { return false, !p.unread }

func (p *played) Broker() (available, known bool) { return true, !p.unread }

func (p *played) OldestBlocker() (time.Duration, bool) { return 0, !p.unread }

func (p *played) Session() (Session, bool) {
	if p.session == nil {
		return Session{}, false
	}
	return *p.session, true
}

// queued is a driver whose only consumer has messages 1, consumers 2, retrying 3 and dead 4.
type queued struct{ sink.Driver }

func (queued) Queues() []sink.ConsumerQueues {
	n := [4]int64{1, 2, 3, 4}
	return []sink.ConsumerQueues{{Consumer: "metrics", Messages: &n[0], Consumers: &n[1], Retrying: &n[2], Dead: &n[3]}}
}

// fresh is a meter of a relay that has connected to nothing.
func fresh() (*Meter, *played, *health.State) {
	p, h := &played{}, &health.State{}
	h.Enter(health.Starting)
	now := time.Now()
	m := New(Options{
		Service: "outbox", Version: "1.2.3", Reasons: []string{"topic"}, Start: now, Started: now, Health: h, Source: p,
		Lines: logqueue.New(io.Discard), Aliases: true, Driver: queued{},
		Outboxes: func() map[int32]string { return map[int32]string{7: "tenant_7.outbox_events"} },
	})
	return m, p, h
}

// scraped is a meter of a relay that halted after it was active so that every metric is there, and what /metrics would
// show.
func scraped(t *testing.T) (*Meter, *played, *health.State, map[string]*dto.MetricFamily) {
	t.Helper()
	m, p, h := fresh()
	h.Enter(health.Active)
	h.Halt(&halt.Error{Code: "column"})
	m.Database.Looked(store.SlotStatus{Exists: true, Confirmed: 1, WALEnd: 1}, time.Now())
	p.session = &Session{Granted: 1, Received: 1, Confirmed: 1}
	for range 2 {
		m.Database.LookedAtSender(SenderLook{At: time.Now()})
	}
	m.Outcomes.lastPublished.Store(1)
	m.Database.OpenDead.Set(0)
	m.Database.Mirrored(0, 0)
	m.Outcomes.published.WithLabelValues("a")
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	p.session = nil
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			byName[f.GetName()] = f
		}
	}
	return m, p, h, byName
}

// Breaks it catches: a metric that is added, renamed, typed, labelled or described otherwise while docs/metrics.md is
// not (seen to fail with another help text, and with a counter defined as a gauge).
func TestMetricsPageIsWhatIsScraped(t *testing.T) {
	const path, end = "../../../docs/metrics.md", "<!-- end of metrics -->"
	const begin = "<!-- metrics: written by go test ./internal/watch/meter -run Metrics -rewrite -->\n"
	m, _, _, families := scraped(t)
	for _, d := range m.defined {
		f := families[d.name]
		if f == nil {
			t.Errorf("%s is defined and not scraped", d.name)
			continue
		}
		delete(families, d.name)
		if kind := strings.ToLower(f.GetType().String()); kind != d.kind || f.GetHelp() != d.help {
			t.Errorf("%s: scraped as %s %q, defined as %s %q", d.name, kind, f.GetHelp(), d.kind, d.help)
		}
		for _, series := range f.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
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
	want := metricTable(m.defined)
	if *rewrite {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("the metrics in %s (-want +got), go test ./internal/watch/meter -run Metrics -rewrite writes them:\n%s",
			path, diff)
	}
}

func metricTable(defined []definition) string {
	var b strings.Builder
	b.WriteString("| name | type, labels | meaning |\n|---|---|---|\n")
	sorted := slices.SortedFunc(slices.Values(defined), func(a, b definition) int { return cmp.Compare(a.name, b.name) })
	for _, d := range sorted {
		labels := ""
		if len(d.labels) > 0 {
			labels = " `" + strings.Join(d.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", d.name, d.kind, labels, strings.ReplaceAll(d.help, "|", `\|`))
	}
	return b.String()
}

// Breaks it catches: buckets that end before a slow outage or begin above a fast broker; a histogram that is classic or
// native only (seen to fail with 30 s as the last bucket, and without the native factor).
func TestLatencyHistogramsReachFromHalfAMillisecondToAMinute(t *testing.T) {
	m, _, _, _ := scraped(t)
	m.Outcomes.publishLatency.observe(3 * time.Millisecond)
	m.Outcomes.relayLatency.observe(3 * time.Millisecond)
	m.Outcomes.settleSeconds.Observe(.003)
	m.Requests.seconds.Observe(.003)
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM || !strings.HasSuffix(f.GetName(), "_seconds") ||
			strings.HasPrefix(f.GetName(), "go_") {
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

// Break it catches: a halt during which nothing is known to wait, though Postgres keeps WAL (seen to fail with the
// session's position only); a standby that tells what it does not know.
func TestLagIsTheSlotsWhileThereIsNoSession(t *testing.T) {
	m, p, h, _ := scraped(t) // halted
	m.Database.Looked(store.SlotStatus{Exists: true, Confirmed: 1000, WALEnd: 5000}, time.Now())
	if lag, known := m.LagBytes(); !known || lag != 4000 || m.Confirmed() != 1000 {
		t.Errorf("halted: got %v bytes from %v, known %v, want 4000 from 1000", lag, m.Confirmed(), known)
	}
	p.session = &Session{Confirmed: 4500, Received: 6000}
	if lag, known := m.LagBytes(); !known || lag != 1500 {
		t.Errorf("with a session: got %v bytes, known %v, want 1500, the received and unconfirmed", lag, known)
	}
	p.session = nil
	h.Enter(health.Standby)
	if lag, known := m.LagBytes(); known {
		t.Errorf("standing by: got %v bytes, want it unknown", lag)
	}
}
