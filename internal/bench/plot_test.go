package bench_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/bench"
)

// Breaks it catches: a plot that no program can read, because of a name or a value of 0, and one that leaves a bar out.
// Seen to fail with a title that is not escaped, and with the logarithm of 0.
func TestPlotsAreWellFormed(t *testing.T) {
	bars := []bench.Bar{
		{Series: `a & "b"`, Summary: bench.Summary{Median: 100_000, Min: 90_000, Max: 110_000}},
		{Series: "c", Summary: bench.Summary{}},
	}
	for _, logarithmic := range []bool{false, true} {
		p := bench.Plot{Title: "a<b&c", Logarithmic: logarithmic, Series: []string{`a & "b"`, "c"}}
		p.Groups = []bench.Group{{Name: "drain-<1>", Bars: bars}, {Name: "other", Bars: bars[:1]}}
		marks, err := readMarks(strings.NewReader(p.SVG()))
		if err != nil {
			t.Errorf("logarithmic %t: %v", logarithmic, err)
		}
		if marks["bar"] != 3 || marks["whisker"] != 3 {
			t.Errorf("logarithmic %t: got %v, want 3 of each", logarithmic, marks)
		}
	}
}

// Break it catches: a rate or a quantile left out of the plot of latencies. Seen to fail with the drains not left out.
func TestLatenciesAreDrawnByRate(t *testing.T) {
	paced := func(rate int) bench.Scenario {
		return bench.Scenario{Name: bench.Paced, Rate: rate,
			Runs: []bench.Outcome{{P50: 1, P95: 2, P99: 3, P999: 4, Most: 5}}}
	}
	r := bench.Report{Scenarios: []bench.Scenario{{Name: bench.DrainSingles, Runs: []bench.Outcome{{Rate: 1}}}, paced(200),
		paced(1000)}}
	path := filepath.Join(t.TempDir(), "latency.svg")
	if err := r.Draw(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), `class="bar"`); got != 10 || !strings.Contains(string(text), "1000 commits/s") {
		t.Errorf("got %d bars in\n%s\nwant 5 for each of two rates", got, text)
	}
}

// readMarks reads the whole of a plot and counts its bars and whiskers; none may have an edge that is no number, or
// below 0.
func readMarks(from io.Reader) (map[string]int, error) {
	marks := map[string]int{}
	reader := xml.NewDecoder(from)
	for {
		token, err := reader.Token()
		if errors.Is(err, io.EOF) {
			return marks, nil
		}
		if err != nil {
			return marks, err
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range element.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.HasPrefix(a.Value, "-") {
				return marks, fmt.Errorf("<%s %s=%q>", element.Name.Local, a.Name.Local, a.Value)
			}
			if a.Name.Local == "class" {
				marks[a.Value]++
			}
		}
	}
}
