package harness

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric is the sum of a metric's samples that have all the given labels, each as name="value"; 0 if there is none.
func (r *Relay) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	sum, err := r.AskMetric(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// AskMetric is Metric for a relay that may not answer: it may be frozen, or not run.
func (r *Relay) AskMetric(ctx context.Context, name string, labels ...string) (float64, error) {
	code, body, err := r.get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("get /metrics: %w", err)
	}
	if code != http.StatusOK {
		return 0, fmt.Errorf("get /metrics: got %d, want 200", code)
	}
	return sumMetric(body, name, labels)
}

func sumMetric(text, name string, labels []string) (float64, error) {
	sum := 0.0
lines:
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, "{"+label) && !strings.Contains(rest, ","+label) {
				continue lines
			}
		}
		value := strings.TrimSpace(rest[strings.LastIndex(rest, "}")+1:])
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += number
	}
	return sum, nil
}
