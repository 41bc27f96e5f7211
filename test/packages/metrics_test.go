package packages

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Each package counts the same story by the names and labels that dashboards and alerts have. Breaks it catches: an
// outcome that is not counted, or counted twice; a name that a library has changed.
func TestMetricsHaveTheNamesOfTheDashboards(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		d := w.start(t, object{"metrics": true})
		if tell(d, story(), false) {
			t.Fatalf("the driver died: %s", d.err)
		}
		for n, fields := range []object{
			{"id": id(7), "key": "d", "value": object{"n": 7}, "headers": object{"event_type": "Other"}},
			{"id": id(1), "key": "a", "value": object{"n": 1}},
			{"id": id(8), "key": "e", "value": object{"n": 8, "fails": "error"}},
			{"id": id(9), "key": "e", "value": object{"n": 9}},
		} {
			place(fields, 10+n)
			d.do(object{"op": "handle", "message": fields})
		}
		text := d.do(object{"op": "metrics"})["text"].(string)
		for series, want := range map[string]float64{
			`consumer_events_processed_total{status="done",type="Effect"}`:      5,
			`consumer_events_processed_total{status="dead",type="Effect"}`:      1,
			`consumer_events_processed_total{status="duplicate",type="Effect"}`: 1,
			`consumer_events_processed_total{status="ignored",type="unknown"}`:  1,
			`consumer_retry_attempts_total{type="Effect"}`:                      2,
			`consumer_handler_not_found_total{type="Other"}`:                    1,
			`consumer_process_duration_seconds_count{type="Effect"}`:            8,
			`consumer_process_duration_seconds_bucket{le="+Inf",type="Effect"}`: 8,
			`consumer_inflight`:          0,
			`consumer_parked_events`:     2,
			`consumer_parked_keys`:       1,
			`consumer_dead_letters_open`: 1,
		} {
			if got, there := sample(t, text, series); !there || got != want {
				t.Errorf("%s: got %v (%t), want %v", series, got, there, want)
			}
		}
		if at, _ := sample(t, text, "consumer_last_processed_timestamp_seconds"); at < 1e9 {
			t.Errorf("consumer_last_processed_timestamp_seconds: got %v, want a time", at)
		}
		if t.Failed() {
			t.Logf("the metrics:\n%s", text)
		}
	})
}

var line = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? (\S+)$`)

// sample is the value of a series, whose labels are sorted.
func sample(t *testing.T, text, series string) (value float64, there bool) {
	t.Helper()
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		labels := strings.Split(strings.TrimSuffix(m[2], ","), ",")
		slices.Sort(labels)
		name := m[1]
		if m[2] != "" {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		if name == series {
			value, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Errorf("%s: %v", m[0], err)
			}
			return value, true
		}
	}
	return 0, false
}
