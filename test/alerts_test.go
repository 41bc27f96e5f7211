package test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const rulesFile = "../deploy/prometheus/rules.yml"

type ruleGroups struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr, For string
			Annotations              map[string]string
		}
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
}

// promised are the alerts that docs and runbooks speak of.
var promised = []string{
	"CdcNoActiveRelay", "CdcOldTransaction", "CdcRelayConfigurationOutdated",
	"CdcRelayHalted", "CdcSlotLost", "CdcSlotWALGrowing", "CdcSlotWALNearLimit",
	"MQDeadLetters", "OutboxAlarmOpen", "OutboxBacklog",
	"OutboxBrokerUnavailable",
	"OutboxDeadLettersGrowing", "OutboxDeadLettersOpen", "OutboxDispatchSlow", "OutboxKeysParked", "OutboxMirrorBehind",
	"OutboxNothingPublished", "OutboxOldestPending", "OutboxPending", "OutboxPermanentFailures", "OutboxPublishLatency",
	"OutboxReconcileOverdue", "OutboxSpooled",
}

// Breaks it catches: a rule that Prometheus refuses, that fires when it should not or stays silent (seen to fail with
// the backlog's threshold at 700 and with its window at 4m), an alert no one tests both ways, a metric that does not
// exist, a runbook that is nowhere.
func TestAlertRulesFireAndStaySilent(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	judgeRules(t, "rules", knownMetrics(t), promised)
}

// judgeRules wants of a file of rules, and of its cases, what the test above is for.
func judgeRules(t *testing.T, name string, known map[string]bool, promised []string) {
	t.Helper()
	rulesFile, casesFile := "../deploy/prometheus/"+name+".yml", "../deploy/prometheus/"+name+"_test.yml"
	promtool := harness.Program(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", rulesFile},
		{"test", "rules", casesFile}} {
		if said, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	var rules ruleGroups
	readYAML(t, rulesFile, &rules)
	var cases struct {
		Tests []struct {
			Checks []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, casesFile, &cases)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, check := range c.Checks {
			if len(check.Alerts) > 0 {
				fires[check.Name] = true
			} else {
				silent[check.Name] = true
			}
		}
	}
	recorded, alerts := map[string]bool{}, map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			recorded[r.Record] = true
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for _, name := range metricsIn(r.Expr) {
				if !known[name] {
					t.Errorf("%s%s names the metric %s, which no page has", r.Record, r.Alert, name)
				}
			}
			for _, name := range recordedName.FindAllString(r.Expr, -1) {
				if !recorded[name] {
					t.Errorf("%s%s names %s, which is not recorded", r.Record, r.Alert, name)
				}
			}
			if r.Alert == "" {
				continue
			}
			alerts[r.Alert] = true
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s: has a test in which it fires: %v, and one in which it does not: %v; want both", r.Alert,
					fires[r.Alert], silent[r.Alert])
			}
			wantRunbook(t, r.Alert, r.Annotations["runbook_url"])
		}
	}
	if got := slices.Sorted(maps.Keys(alerts)); !slices.Equal(got, promised) {
		t.Errorf("alerts: got %v, want %v", got, promised)
	}
}

var (
	metricName   = regexp.MustCompile(`\b(?:outbox|cdc|kafka|mq|consumer|broker_consumer)_[a-z0-9_]+`)
	recordedName = regexp.MustCompile(`\b(?:service|limit)[a-z_]*:[a-z0-9_:]+`)
	histogramEnd = regexp.MustCompile(`_(bucket|count|sum)$`)
	tableRow     = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) ")
)

// metricsIn are the metrics of ours that a query reads.
func metricsIn(query string) []string {
	var names []string
	for _, name := range metricName.FindAllString(recordedName.ReplaceAllString(query, ""), -1) {
		names = append(names, histogramEnd.ReplaceAllString(name, ""))
	}
	return names
}

// knownMetrics are those of docs/metrics.md, which another test compares with what is scraped, and the reserved names.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		known[row[1]] = true
	}
	if len(known) < 20 {
		t.Fatalf("docs/metrics.md: got %d metrics, want the whole table", len(known))
	}
	before, _, _ := strings.Cut(string(text), "<!-- metrics:") // what the relay's own page does not have
	for _, name := range metricName.FindAllString(before, -1) {
		known[name] = true
	}
	return known
}

// wantRunbook fails unless the address leads to a page, and to the heading in it, of those that a relay serves.
func wantRunbook(t *testing.T, of, address string) {
	t.Helper()
	page, served := strings.CutPrefix(address, "http://127.0.0.1:9464/docs/")
	if page == "runbooks/{{ $labels.code }}" {
		return // each code of a halt has one, which another test sees to
	}
	path, anchor, _ := strings.Cut(page, "#")
	text, err := os.ReadFile(filepath.Join("../docs", path+".md"))
	if err != nil || !served {
		t.Errorf("%s: runbook_url %q: %v", of, address, err)
		return
	}
	for line := range strings.Lines(string(text)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && slug(heading) == anchor {
			return
		}
	}
	t.Errorf("%s: runbook_url %q: no such heading", of, address)
}

// slug returns a heading's anchor as forges make it.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(strings.TrimSpace(heading)))
}

var (
	ruleWindow  = regexp.MustCompile(`(\[|for: |offset )(\d+)m\b`)
	ruleSeconds = regexp.MustCompile(`(limit:outbox_(?:oldest_pending|silence):seconds', expr: vector\()(\d+)0\)`)
)

// processAge is the age, in seconds, below which a process has counted all that it counts within 15 minutes.
const processAge = "< 15 * 60)"

// hastened are the rules with every window, and the limits of age and silence, a sixtieth: minutes become seconds. What
// the relay itself does by the minute, such as reconciling, keeps its limit.
func hastened(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	rules := ruleWindow.ReplaceAllString(string(text), "${1}${2}s")
	if strings.Count(rules, processAge) != 1 || strings.Count(rules, "[5s:15s]") != 1 {
		t.Fatal("the age of a young process, or for how long alarms are remembered, is not where it was")
	}
	rules = strings.Replace(rules, "[5s:15s]", "[5s:1s]", 1)
	return ruleSeconds.ReplaceAllStringFunc(strings.Replace(rules, processAge, "< 15)", 1),
		func(limit string) string {
			m := ruleSeconds.FindStringSubmatch(limit)
			tens, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%s%d)", m[1], tens/6)
		})
}
