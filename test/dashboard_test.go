package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var labelValues = regexp.MustCompile(`label_values\(([a-z_]+)`)

// Breaks it catches: a panel on a metric that does not exist (seen to fail with one letter changed), one that asks no
// data source, two in one place, a query that ignores the service chosen.
func TestDashboardShowsMetricsThatExist(t *testing.T) {
	const service, relay = `{service=~"$service"}`, `{service=~"$service",relay=~"$relay"}`
	t.Run("relay", func(t *testing.T) { judgeDashboard(t, "cdc-relay.json", relay, knownMetrics(t)) })
	t.Run("inbox", func(t *testing.T) { judgeDashboard(t, "inbox.json", service, inboxMetrics(t)) })
}

func judgeDashboard(t *testing.T, name, chosen string, known map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../deploy/grafana/dashboards", name))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID          int
			Title       string
			Description string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatalf("read the dashboard: %v", err)
	}
	for _, m := range labelValues.FindAllStringSubmatch(string(text), -1) {
		if !known[m[1]] {
			t.Errorf("a variable asks for %s, which no page has", m[1])
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: id %d (there already: %v), description %q, %d queries", p.Title, p.ID, ids[p.ID], p.Description,
				len(p.Targets))
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q lies over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, q := range p.Targets {
			names := metricsIn(q.Expr)
			if len(names) == 0 || q.Datasource.UID != "${datasource}" || !strings.Contains(q.Expr, chosen) {
				t.Errorf("panel %q: query %q asks %q; want one of our metrics, of what is chosen, from the source chosen",
					p.Title, q.Expr, q.Datasource.UID)
			}
			for _, name := range names {
				if !known[name] {
					t.Errorf("panel %q names the metric %s, which no page has", p.Title, name)
				}
			}
		}
	}
}

var written = regexp.MustCompile(`(?s)psql -q -c "(INSERT .*?)"`)

// Break it catches: a demonstration that shows nothing, because its writer's statement fails (seen to fail with a
// column renamed), or whose types have no topic.
func TestComposeWriterWritesForTopicsThatThereAre(t *testing.T) {
	pg := harness.Postgres(t)
	harness.NewRelay(t, harness.NewSettings(t, pg, []string{"127.0.0.1:1"})).Init(t)
	var compose struct {
		Services map[string]struct {
			Command any
			Ports   []string
		}
	}
	readYAML(t, "../docker-compose.yml", &compose)
	m := written.FindStringSubmatch(fmt.Sprint(compose.Services["writer"].Command))
	if m == nil {
		t.Fatalf("the writer's command has no statement: %v", compose.Services["writer"].Command)
	}
	for range 50 {
		pg.Exec(t, m[1])
	}
	created := fmt.Sprint(compose.Services["topics"].Command)
	for kind := range strings.SplitSeq(pg.Query(t, "SELECT string_agg(DISTINCT aggregate_type, ',') FROM outbox_events"),
		",") {
		if !strings.Contains(created, "outbox.event."+kind) {
			t.Errorf("the writer writes %q, whose topic is not created: %s", kind, created)
		}
	}
	for name, service := range compose.Services {
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") || strings.HasPrefix(port, "127.0.0.1:5432:") {
				t.Errorf("service %s publishes %s, want a loopback port that a Postgres of this machine does not have", name, port)
			}
		}
	}
}

// mounts are the service's mounts of files with a profile chosen.
func mounts(volumes []string, profile string) (from, to []string) {
	for _, volume := range volumes {
		parts := strings.Split(strings.ReplaceAll(volume, "${COMPOSE_PROFILES:-relay}", cmp.Or(profile, "relay")), ":")
		if strings.HasPrefix(parts[0], "./") {
			from, to = append(from, parts[0]), append(to, parts[1])
		}
	}
	return from, to
}

// Break it catches: a file that docker-compose.yml or a provisioning file mounts or names, and that is not there (seen
// to fail with another name for the rules).
func TestComposeFindsItsFiles(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Profiles []string
			Volumes  []string
		}
	}
	readYAML(t, "../docker-compose.yml", &compose)
	profiles := map[string]bool{"": true} // without one: Kafka
	for _, service := range compose.Services {
		for _, profile := range service.Profiles {
			profiles[profile] = true
		}
	}
	mounted := map[string]bool{}
	for name, service := range compose.Services {
		for profile := range profiles {
			from, to := mounts(service.Volumes, profile)
			for i := range from {
				mounted[to[i]] = true
				if _, err := os.Stat("../" + from[i]); err != nil {
					t.Errorf("service %s mounts %s: %v", name, from[i], err)
				}
			}
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, "../deploy/grafana/provisioning/dashboards/cdc-relay.yaml", &providers)
	if len(providers.Providers) == 0 || !mounted[providers.Providers[0].Options.Path] {
		t.Errorf("dashboards are read from %v, which is none of the mounts %v", providers.Providers, mounted)
	}
	var prometheus struct {
		Rules []string `yaml:"rule_files"`
	}
	readYAML(t, "../deploy/prometheus/prometheus.yml", &prometheus)
	for _, name := range prometheus.Rules {
		if _, err := os.Stat("../deploy/prometheus/" + name); err != nil {
			t.Errorf("rule file: %v", err)
		}
	}
	if len(prometheus.Rules) == 0 {
		t.Error("prometheus.yml names no rule file")
	}
}
