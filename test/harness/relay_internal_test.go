package harness

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Breaks it catches: a metric whose name begins with another's taken for it, a label matched inside another's name or
// value.
func TestMetricSumsTheSamplesThatItsLabelsSelect(t *testing.T) {
	const text = "# HELP events Events.\n# TYPE events counter\n" +
		"events{service=\"a b}\",topic=\"x\"} 2\nevents{service=\"a\",topic=\"y\"} 3\nevents_total 100\nplain 7\nsmall " +
		"1e-3\nevents{subtopic=\"x\"} 50\n"
	for _, row := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"events", nil, 55},
		{"events", []string{`topic="x"`}, 2},
		{"events", []string{`service="a"`, `topic="y"`}, 3},
		{"events_total", nil, 100},
		{"plain", nil, 7},
		{"small", nil, 0.001},
		{"none", nil, 0},
	} {
		got, err := sumMetric(text, row.name, row.labels)
		if err != nil {
			t.Errorf("%s %q: %v", row.name, row.labels, err)
		}
		if got != row.want {
			t.Errorf("%s %q: got %v, want %v", row.name, row.labels, got, row.want)
		}
	}
}

// Breaks it catches: keys that are not nested, With changing the settings it copies.
func TestSettingsBecomeNestedYAML(t *testing.T) {
	s := Settings{"kafka.brokers": []string{"a:1"}, "kafka.tls.enabled": true, "service": "x"}
	changed := s.With("service", "z", "postgres.slot", "s")
	got, err := changed.YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := "kafka:\n  brokers:\n  - a:1\n  tls:\n    enabled: true\npostgres:\n  slot: s\nservice: z\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("YAML (-want +got):\n%s", diff)
	}
	if s["service"] != "x" || s["postgres.slot"] != nil {
		t.Errorf("settings after With: got %v, want them unchanged", s)
	}
}

// Break it catches: CDC_RELAY_NIGHTLY=1 that the relay takes for a configuration key, so that no nightly test can start
// one.
func TestRelayDoesNotSeeTheTestsOwnVariables(t *testing.T) {
	t.Setenv("CDC_RELAY_NIGHTLY", "1")
	for _, entry := range relayEnviron() {
		if strings.HasPrefix(entry, "CDC_RELAY_") {
			t.Errorf("environment of the relay: got %s, want none of the tests' own", entry)
		}
	}
}

// Break it catches: a test that is skipped because the machine lacks something, and make test that ends in a bare ok.
// Seen to fail with the note left out.
func TestWhatIsMissingIsNotedForTheEnd(t *testing.T) {
	note := filepath.Join(t.TempDir(), "missing")
	t.Setenv("CDC_RELAY_TEST_MISSING", note)
	t.Setenv("CI", "")
	for _, what := range []string{"promtool", "PgBouncer"} {
		t.Run("without "+what, func(t *testing.T) { missing(t, what, errors.New("it is not installed")) })
	}
	got, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	const test = "TestWhatIsMissingIsNotedForTheEnd/without_"
	if want := test + "promtool: promtool is missing\n" + test + "PgBouncer: PgBouncer is missing\n"; string(got) != want {
		t.Errorf("noted: got %q, want %q", got, want)
	}
}
