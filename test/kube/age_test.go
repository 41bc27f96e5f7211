package kube

import (
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// Break it catches: an alert that fires forever, because rounds are rarer than it allows. Seen to fail with the rules
// as the file has them, and with once the interval.
func TestChartRaisesTheLimitOfReconcilesWithTheirInterval(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for interval, want := range map[string]string{
		"1s": "vector(600)", "1m": "vector(600)", "4m": "vector(600)", "10m": "vector(1320)", "1h30m": "vector(10920)",
		"24h": "vector(172920)", "${INTERVAL}": "vector(600)",
	} {
		values := with(t, "reconcile.interval", interval)
		values["prometheusRule"] = map[string]any{"enabled": true}
		found := ""
		object := get[monitoring.PrometheusRule](t, renderValues(t, c, values, "shop"), "shop-cdc-relay")
		for _, group := range object.Spec.Groups {
			for _, rule := range group.Rules {
				if rule.Record == "limit:outbox_reconcile_age:seconds" {
					found = rule.Expr.String()
				}
			}
		}
		if found != want {
			t.Errorf("reconcile.interval %s: the limit is %q, want %q", interval, found, want)
		}
	}
}
