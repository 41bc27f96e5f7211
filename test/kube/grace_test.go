package kube

import (
	"strings"
	"testing"
	"time"
)

// Breaks it catches: a pod that is killed before the relay may have stopped, because the chart did not understand how
// long that takes; and a time that is refused though it fits. Seen to fail with the chart's reading of before, which
// knew whole seconds and minutes and took the rest for nothing, with ms for minutes, and with 0 for no value.
func TestChartReadsTheGraceAsTheRelayDoes(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, grace := range []string{
		"0", "0s", "1s", "20s", "29s", "29.9s", "29999ms", "+5s", ".25m", "29s999ms", "29999999us", "29999999µs",
		"29999999999ns", "0.008h",
		"30s", "30.5s", "30000ms", "1m", "1m30s", "90000ms", "0.5h", "1h0m0s", "0.5m", "29s1000ms", "30000000us",
		"60000000µs",
	} {
		d, err := time.ParseDuration(grace)
		if err != nil {
			t.Fatal(err)
		}
		values := with(t, "shutdown_grace", grace)
		if grace == "0" {
			values = with(t, "shutdown_grace", 0)
			values["terminationGracePeriodSeconds"] = 1
		} else {
			values["terminationGracePeriodSeconds"] = 30
		}
		_, err = render(c, values, "shop")
		if want := d >= 30*time.Second; (err != nil) != want ||
			want && !strings.Contains(err.Error(), "must be more than config.shutdown_grace, "+grace) {
			t.Errorf("shutdown_grace %s, and 30 s to end: got %v, want refused: %v", grace, err, want)
		}
	}
}

// Break it catches: a grace that the chart cannot read and takes for none. Seen to fail without the template's fail.
func TestChartRefusesAGraceThatItCannotRead(t *testing.T) {
	t.Parallel()
	_, err := render(loadChart(t), with(t, "shutdown_grace", "${GRACE}"), "shop")
	const want = "config.shutdown_grace is ${GRACE}, which the chart cannot read: write it as a number with a unit"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
