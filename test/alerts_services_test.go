package test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// ruleCase is a test of rules_test.yml, as promtool reads it.
type ruleCase struct {
	Name     string          `yaml:"name"`
	Interval string          `yaml:"interval"`
	Series   []ruleSeries    `yaml:"input_series"`
	Checks   []ruleCaseCheck `yaml:"alert_rule_test"`
}

type ruleSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type ruleCaseCheck struct {
	At     string          `yaml:"eval_time"`
	Alert  string          `yaml:"alertname"`
	Alerts []expectedAlert `yaml:"exp_alerts"`
}

type expectedAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// well are the metrics of a healthy service that has published every event.
var well = map[string]string{
	`cdc_relay_role{service="well", role="active", instance="w"}`:  "1",
	`cdc_relay_role{service="well", role="standby", instance="w"}`: "0",
	`outbox_backlog_gauge{service="well"}`:                         "0",
	`outbox_oldest_pending_age_seconds{service="well"}`:            "0", `outbox_dlq_events{service="well"}`: "0",
	`outbox_parked_keys{service="well"}`: "0", `outbox_mirror_lag_events{service="well"}`: "0",
	`outbox_alarms_open{service="well", kind="lost_data"}`: "0",
	`cdc_oldest_transaction_seconds{service="well"}`:       "0",
	`outbox_audited_until_seconds{service="well"}`:         "30", `cdc_slot_retained_wal_bytes{service="well"}`: "1000",
	`cdc_slot_safe_wal_bytes{service="well"}`:        "900000",
	`cdc_slot_status{service="well", status="lost"}`: "0", `cdc_relay_halted{service="well", code="column"}`: "0",
	`cdc_slot_recreations_total{service="well"}`:                       "0",
	`outbox_failed_permanent_total{service="well", class="permanent"}`: "0",
	`outbox_published_total{service="well", topic="w"}`:                "100",
	`outbox_last_published_timestamp_seconds{service="well"}`:          "0",
}

// among is the case with two services in the same trouble and one that is well.
func (c ruleCase) among() ruleCase {
	other := strings.NewReplacer(`service="shop"`, `service="post"`)
	name := strings.NewReplacer("shop", "post")
	for _, s := range c.Series {
		if its := other.Replace(s.Series); its != s.Series { // what is of a process is there once
			c.Series = append(c.Series, ruleSeries{its, s.Values})
		}
	}
	for series, value := range well {
		c.Series = append(c.Series, ruleSeries{series, value + "x1000"})
	}
	for i, check := range c.Checks {
		alerts := check.Alerts
		for _, a := range check.Alerts {
			if a.Labels["service"] != "shop" {
				continue
			}
			b := expectedAlert{maps.Clone(a.Labels), maps.Clone(a.Annotations)}
			b.Labels["service"], b.Annotations["summary"] = "post", name.Replace(a.Annotations["summary"])
			alerts = append(alerts, b)
		}
		c.Checks[i].Alerts = alerts
	}
	return c
}

// Every case of rules_test.yml is played once more among three services. Breaks it catches: a rule in which a service
// that is well, or one in the same trouble, hides another (seen to fail with absent() of all services as the only sign
// of a dead one, and with the backlog summed over all).
func TestAlertRulesHoldForEachService(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	promtool := harness.Program(t, "promtool", "prometheus")
	var file struct {
		Tests []ruleCase `yaml:"tests"`
	}
	readYAML(t, "../deploy/prometheus/rules_test.yml", &file)
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var cases []ruleCase
	for _, c := range file.Tests {
		if len(c.Series) > 0 && strings.Contains(c.Series[0].Series, "service=") { // the rest is about none at all
			cases = append(cases, c.among())
		}
	}
	if len(cases) < 30 {
		t.Fatalf("got %d cases, want those of rules_test.yml", len(cases))
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "15s", "tests": cases})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "services.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, said)
	}
}

// A service that died is missed for a week, then forgotten; here the week has two hours. Break it catches: an alert
// that ends with what Prometheus looks back, or never. Seen to fail with the last time looked up in the last 30 s only,
// with the two hours as one minute, and with a service that is remembered forever.
func TestDeadServiceIsMissedForAWeek(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	promtool := harness.Program(t, "promtool", "prometheus")
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	short := strings.Replace(string(rules), "time() - 7 * 86400", "time() - 2 * 3600", 1)
	if short == string(rules) {
		t.Fatal("the rules remember services for another time than 7 days")
	}
	const missed = `[{exp_labels: {service: shop, severity: critical},
        exp_annotations: {summary: 'shop: no relay is active',
        description: 'Nothing is relayed, and Postgres keeps WAL for the slot. A halted relay says why;
          with none at all, start one.',
        runbook_url: 'http://127.0.0.1:9464/docs/alerts#cdcnoactiverelay'}}]`
	const text = `rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'cdc_relay_role{service="shop", role="active"}', values: '1x10 stale'}
      - {series: 'cdc_relay_role{service="mail", role="active"}', values: '1x200'}
    alert_rule_test:
      - {eval_time: 9m, alertname: CdcNoActiveRelay, exp_alerts: []}
      - {eval_time: 14m, alertname: CdcNoActiveRelay, exp_alerts: ` + missed + `}
      - {eval_time: 125m, alertname: CdcNoActiveRelay, exp_alerts: ` + missed + `}
      - {eval_time: 140m, alertname: CdcNoActiveRelay, exp_alerts: []}
`
	dir := t.TempDir()
	for name, content := range map[string]string{"rules.yml": short, "test.yml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.CommandContext(t.Context(), promtool, "test", "rules",
		filepath.Join(dir, "test.yml")).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, said)
	}
}
