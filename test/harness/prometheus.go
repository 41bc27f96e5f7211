package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// Program is the path of an installed program; the test is skipped without it, or fails in CI. The package is Debian's.
func Program(t testing.TB, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name+" (Debian package "+debianPackage+")", err)
	}
	return path
}

// Prometheus is a real one that scrapes relays and evaluates rules.
type Prometheus struct {
	URL     string
	process *child.Process
}

// StartPrometheus starts one that scrapes the relays and evaluates the rules, both five times a second. It ends with
// the test.
func StartPrometheus(t testing.TB, rules string, relays ...*Relay) *Prometheus {
	t.Helper()
	var urls []string
	for _, r := range relays {
		urls = append(urls, r.URL)
	}
	return StartPrometheusAt(t, rules, "{}", urls...)
}

// StartPrometheusAt is StartPrometheus for whatever serves /metrics at these addresses, with labels in YAML: a relay
// has a label service, a consumer gets its own from who scrapes it.
func StartPrometheusAt(t testing.TB, rules, labels string, urls ...string) *Prometheus {
	t.Helper()
	needsServers(t)
	binary := Program(t, "prometheus", "prometheus")
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, url := range urls {
		targets = append(targets, strings.TrimPrefix(url, "http://"))
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: "+
		"200ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: cdc-relay, static_configs: [{targets: [%q], labels: %s}]}]\n",
		strings.Join(targets, `", "`), labels)
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &Prometheus{URL: "http://" + addr}
	p.process, err = child.Start(child.Config{
		Path: binary, Dir: dir, DeathSignal: syscall.SIGKILL,
		Args: []string{"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + addr,
			"--log.level=warn"},
	})
	if err != nil {
		t.Fatalf("start Prometheus: %v", err)
	}
	t.Cleanup(p.process.Kill)
	Eventually(t, 30*time.Second, "Prometheus is ready", func(ctx context.Context) string {
		if p.process.Ended() {
			t.Fatalf("Prometheus ended: %s", p.process.LastWords())
		}
		if _, err := p.get(ctx, "/-/ready"); err != nil {
			return err.Error()
		}
		return ""
	})
	return p
}

// Firing are the names of the alerts that fire now.
func (p *Prometheus) Firing(ctx context.Context) (map[string]bool, error) {
	body, err := p.get(ctx, "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read Prometheus' alerts: %w", err)
	}
	firing := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]] = true
		}
	}
	return firing, nil
}

func (p *Prometheus) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	request.Close = true // no idle connection may outlive the test
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("Prometheus answers %s: %.200s", response.Status, body)
	}
	return body, err
}

// Wait waits until the condition holds for the alerts that fire.
func (p *Prometheus) Wait(t testing.TB, what string, condition func(firing map[string]bool) bool) {
	t.Helper()
	Eventually(t, 2*time.Minute, what, func(ctx context.Context) string {
		firing, err := p.Firing(ctx)
		switch {
		case err != nil:
			return err.Error()
		case !condition(firing):
			return fmt.Sprintf("firing: %v", slices.Sorted(maps.Keys(firing)))
		}
		return ""
	})
}

// Fires waits until all these alerts fire.
func (p *Prometheus) Fires(t testing.TB, what string, alerts ...string) {
	t.Helper()
	p.Wait(t, what, func(firing map[string]bool) bool {
		return !slices.ContainsFunc(alerts, func(alert string) bool { return !firing[alert] })
	})
}

// Quiet waits until no alert fires.
func (p *Prometheus) Quiet(t testing.TB, what string) {
	t.Helper()
	p.Wait(t, what, func(firing map[string]bool) bool { return len(firing) == 0 })
}

// Series is one line that a query gives: its labels, and its values by Unix time in seconds. What is no number is left
// out.
type Series struct {
	Labels map[string]string `json:"labels"`
	Times  []float64         `json:"times"`
	Values []float64         `json:"values"`
}

// Range asks a query for each step between two points in time, as a panel of a dashboard does.
func (p *Prometheus) Range(ctx context.Context, query string, from, to time.Time,
	step time.Duration) ([]Series, error) {
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
	body, err := p.get(ctx, "/api/v1/query_range?"+url.Values{"query": {query}, "start": {seconds(from.UnixMilli())},
		"end": {seconds(to.UnixMilli())}, "step": {seconds(step.Milliseconds())}}.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any // time, value as text
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read Prometheus' answer to %s: %w", query, err)
	}
	var list []Series
	for _, r := range answer.Data.Result {
		s := Series{Labels: r.Metric}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			n, err := strconv.ParseFloat(text, 64)
			if err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
				s.Times, s.Values = append(s.Times, at), append(s.Values, n)
			}
		}
		if len(s.Values) > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}
