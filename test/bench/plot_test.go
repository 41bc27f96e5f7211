package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/bench"
)

// plotOf plots the figures whose names end like one of the series; the prefix of the name
// tells the relay, when several are compared.
func (r *result) plotOf(title string, logarithmic bool, series ...string) bench.Plot {
	p := bench.Plot{Title: title, Logarithmic: logarithmic}
	for _, s := range r.Scenarios {
		group := bench.Group{Name: s.Name}
		for _, f := range s.Figures {
			if slices.ContainsFunc(series, func(end string) bool { return strings.HasSuffix(f.Name, end) }) {
				group.Bars = append(group.Bars, bench.Bar{Series: f.Name,
					Summary: bench.Summary{Median: f.Median, Min: f.Min, Max: f.Max}})
				if !slices.Contains(p.Series, f.Name) {
					p.Series = append(p.Series, f.Name)
				}
			}
		}
		if len(group.Bars) > 0 {
			p.Groups = append(p.Groups, group)
		}
	}
	return p
}

// draw writes drains.svg and paces.svg, as far as there is something to show.
func (r *result) draw(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("draw the results: %w", err)
	}
	for name, p := range map[string]bench.Plot{
		"drains.svg": r.plotOf("Drains: events/s, commit "+r.Commit, false, relayRate, clientFloor, loopFloor),
		"paces.svg": r.plotOf("Paces: COMMIT to consumer, ms, commit "+r.Commit, true, relayLatency+"p50 ms",
			relayLatency+"p95 ms", relayLatency+"p99 ms"),
	} {
		if len(p.Groups) == 0 {
			continue
		}
		if err := p.Write(filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

// Break it catches: a plot that leaves a scenario or a relay out. Seen to fail with relays left out that are compared.
func TestPlotsAreComplete(t *testing.T) {
	r := &result{Commit: "a<b&c"}
	for _, name := range []string{"drain-100", "drain-<1>"} {
		r.add(name, "", [][]sample{
			{{relayRate, 100_000, mark{}}, {clientFloor, 150_000, mark{}}, {loopFloor, 0, mark{}}, {"x", 1, mark{}}},
			{{relayRate, 90_000, mark{}}, {clientFloor, 170_000, mark{}}, {loopFloor, 0, mark{}}, {"x", 1, mark{}}},
		}, 0)
	}
	r.add("paced-200", "", [][]sample{{
		{`a & "b": ` + relayLatency + "p50 ms", 0, mark{}}, {`a & "b": ` + relayLatency + "p95 ms", 3, mark{}},
		{relayLatency + "p99 ms", 1000, mark{}},
	}}, 0)
	directory := filepath.Join(t.TempDir(), "plots")
	if err := r.draw(directory); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"drains.svg": 6, "paces.svg": 3} {
		text, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), `class="bar"`); got != want {
			t.Errorf("%s: got %d bars, want %d", name, got, want)
		}
	}
}
