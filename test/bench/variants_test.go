package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var relaysFlag = flag.String("relays", "",
	"compare relays, by commas, in turns within each run: default (this tree's), "+
		"tls, scram (this tree's, over TLS to Postgres and Kafka, and logged in to Kafka), "+
		"key=value (this tree's with that setting), or the path of another binary")

// variant is one of the relays that a run compares.
type variant struct {
	name, binary string
	setting      []any // key, value; none: the scenario's settings
}

// settingOf is this tree's relay with a setting that is written as key=value.
func settingOf(name string) (v variant, is bool) {
	key, value, is := strings.Cut(name, "=")
	return variant{name: name, setting: []any{key, value}}, is
}

// of is the stage with the settings of the variant.
func (st *stage) of(v variant) *stage {
	own := *st
	own.relaySettings = slices.Concat(st.relaySettings, v.setting)
	if len(v.setting) > 0 && v.setting[0] == "outbox.after_publish" {
		own.afterPublish = v.setting[1].(string)
	}
	return &own
}

// variants are the relays that -relays names; none: only this tree's.
func variants(t *testing.T, names string) (all []variant) {
	t.Helper()
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		v, is := settingOf(name)
		if !is {
			v = variant{name: name}
		}
		switch {
		case is, name == "default", v.guarded():
			v.binary = harness.BuildRelay(t, "bench_default") // a tag that nothing asks for
		default:
			if _, err := os.Stat(name); err != nil {
				t.Fatalf("-relays: %q is none of default, tls and scram, nor a file: %v", name, err)
			}
			v.binary = name
		}
		v.binary = copied(t, v.binary)
		all = append(all, v)
	}
	return all
}

// copied is a copy of a program, so that all that are compared were written alike, and as cp does: two builds of almost
// the same code differed by a tenth in events/s and by 10 MiB in peak RSS, and no more once both were copied. The size
// of the writes decides in what pieces a file lies in the kernel's cache, and a process maps a piece as a whole: of a
// program that was written at once, 15 MiB more.
func copied(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cdc-relay")
	if said, err := exec.Command("cp", program, path).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", program, err, said)
	}
	return path
}

// inTurns runs once for each relay that is compared; who begins changes from turn to turn. Behind the figures of each
// come, for all but the first, their ratios to the first one's of the same turn.
func (st *stage) inTurns(t *testing.T, turn int, once func(t *testing.T, v variant) []sample) []sample {
	t.Helper()
	if len(st.variants) == 0 {
		return once(t, variant{})
	}
	results := make([][]sample, len(st.variants))
	for n := range st.variants {
		i := (n + turn) % len(st.variants)
		if !t.Run(filepath.Base(st.variants[i].name), func(t *testing.T) { results[i] = once(t, st.variants[i]) }) {
			t.FailNow()
		}
	}
	var all []sample
	for i, v := range st.variants {
		for n, s := range results[i] {
			all = append(all, sample{v.name + ": " + s.name, s.value, s.mark})
			if i > 0 { // in each run, whatever the values, or the figures of the runs would not stand side by side
				all = append(all, sample{fmt.Sprintf("  %s / %s", v.name, st.variants[0].name), ratio(s.value, results[0][n].value),
					mark{}})
			}
		}
	}
	return slices.Clip(all)
}

// ratio is 1 for two zeros; beside anything else a zero, which is less than a clock or a counter shows, counts as 1.
func ratio(value, first float64) float64 {
	switch {
	case value == first:
		return 1
	case first == 0:
		return value
	}
	return value / first
}

// Breaks it catches: a relay that is left out or always begins, a ratio of figures that do not belong together, and one
// that is missing when the first relay's figure is 0. Seen to fail with the turn left out, with the ratio upside down,
// and with the ratio to 0 left out.
func TestRelaysAreComparedInTurns(t *testing.T) {
	harness.Full(t)
	st := &stage{options: options{variants: []variant{{name: "a"}, {name: "b"}, {name: "c"}}}}
	began := map[string]bool{}
	for turn := range 3 {
		var order []string
		got := st.inTurns(t, turn, func(_ *testing.T, v variant) []sample {
			order = append(order, v.name)
			// 1, 2, 3 and 0, 1, 2
			return []sample{{name: "x", value: float64(1 + int(v.name[0]-'a'))},
				{name: "y", value: float64(int(v.name[0] - 'a'))}}
		})
		began[order[0]] = true
		var names []string
		for _, s := range got {
			names = append(names, fmt.Sprint(s.name, "=", s.value))
		}
		want := []string{"a: x=1", "a: y=0", "b: x=2", "  b / a=2", "b: y=1", "  b / a=1", "c: x=3", "  c / a=3", "c: y=2",
			"  c / a=2"}
		if !slices.Equal(names, want) || len(order) != 3 {
			t.Errorf("turn %d: got %q by %q, want %q", turn, names, order, want)
		}
	}
	if len(began) != 3 {
		t.Errorf("who began: got %v, want each once", began)
	}
}

// Breaks it catches: a relay that is measured without the setting that it is named after, or beside one that has it;
// rows looked at for marks where none are made. Seen to fail with the setting left out, and with what becomes of
// published rows left as it was.
func TestRelayOfASettingHasIt(t *testing.T) {
	harness.Full(t)
	st := &stage{options: options{relaySettings: []any{"log.level", "warn"}, shape: shape{afterPublish: "mark"}}}
	v, is := settingOf("outbox.after_publish=keep")
	own := st.of(v)
	if !is || own.afterPublish != "keep" || fmt.Sprint(own.relaySettings) != "[log.level warn outbox.after_publish keep]" {
		t.Errorf("with a setting: got %t, after_publish %s, settings %v", is, own.afterPublish, own.relaySettings)
	}
	if len(st.relaySettings) != 2 || st.afterPublish != "mark" {
		t.Errorf("the others: got after_publish %s, settings %v", st.afterPublish, st.relaySettings)
	}
	if _, is := settingOf("default"); is {
		t.Error("default: taken for a setting")
	}
}
