package test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const dashboardFile = "../deploy/grafana/dashboards/cdc-relay.json"

// panel is one panel of the dashboard.
type panel struct {
	Title   string          `json:"title"`
	Type    string          `json:"type"`
	GridPos json.RawMessage `json:"gridPos"`
	Config  json.RawMessage `json:"fieldConfig"`
	Options json.RawMessage `json:"options"`
	Targets []struct {
		Expr   string           `json:"expr"`
		Legend string           `json:"legendFormat"`
		Series []harness.Series `json:"series"` // what Prometheus says
	} `json:"targets"`
}

// ofAll replaces Grafana's variables: all services and relays, and a window of a few scrapes; the harness
// makes five a second.
var ofAll = strings.NewReplacer("$service", ".*", "$relay", ".*", "$__rate_interval", "4s")

// asked is the dashboard's panels, with what Prometheus answers to their queries for the time since then.
func asked(t *testing.T, p *harness.Prometheus, since time.Time) []panel {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	step := max(now.Sub(since)/300, 200*time.Millisecond)
	for _, one := range dashboard.Panels {
		for i := range one.Targets {
			q := &one.Targets[i]
			if q.Series, err = p.Range(t.Context(), ofAll.Replace(q.Expr), since, now, step); err != nil {
				t.Fatalf("panel %q: %v", one.Title, err)
			}
		}
	}
	return dashboard.Panels
}

// empty are the queries, by panel and legend, that give nothing in these scenarios, with the reason.
var empty = map[string]string{
	"Halted: {{instance}} {{code}}":         "no relay halts",
	"WAL kept for the slot, and left: left": "max_slot_wal_keep_size is unlimited",
}

// wantPanels fails for each query that has shown nothing, unless it is known to be empty, which it must be then.
func wantPanels(t *testing.T, panels []panel) {
	t.Helper()
	for _, one := range panels {
		for _, q := range one.Targets {
			name := one.Title + ": " + q.Legend
			if why := empty[name]; (len(q.Series) == 0) != (why != "") {
				t.Errorf("panel %q: %d lines for %s, and the reason to be empty is %q", name, len(q.Series), q.Expr, why)
			}
		}
	}
	if len(panels) < 15 {
		t.Errorf("got %d panels, want those of the dashboard", len(panels))
	}
}
