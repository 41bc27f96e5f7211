package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plot is bars with whiskers, in groups: a group for each scenario, a bar for each of its figures.
type plot struct {
	title       string
	logarithmic bool
	series      []string // one colour each
	groups      []plotGroup
}

type plotGroup struct {
	name string
	bars []plotBar
}

type plotBar struct {
	series           string
	median, min, max float64
}

// plotOf is a plot of the figures whose names end as one of the series does; what stands in front of that in the name says of which
// relay they are, when several are compared.
func (r *result) plotOf(title string, logarithmic bool, series ...string) plot {
	p := plot{title: title, logarithmic: logarithmic}
	for _, s := range r.Scenarios {
		group := plotGroup{name: s.Name}
		for _, f := range s.Figures {
			if slices.ContainsFunc(series, func(end string) bool { return strings.HasSuffix(f.Name, end) }) {
				group.bars = append(group.bars, plotBar{f.Name, f.Median, f.Min, f.Max})
				if !slices.Contains(p.series, f.Name) {
					p.series = append(p.series, f.Name)
				}
			}
		}
		if len(group.bars) > 0 {
			p.groups = append(p.groups, group)
		}
	}
	return p
}

// draw writes drains.svg and paces.svg, as far as there is something to show.
func (r *result) draw(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("draw the results: %w", err)
	}
	for name, p := range map[string]plot{
		"drains.svg": r.plotOf("Drains: events/s, commit "+r.Commit, false, relayRate, clientFloor, loopFloor),
		"paces.svg":  r.plotOf("Paces: COMMIT to consumer, ms, commit "+r.Commit, true, relayLatency+"p50 ms", relayLatency+"p95 ms", relayLatency+"p99 ms"),
	} {
		if len(p.groups) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(p.svg()), 0o644); err != nil {
			return fmt.Errorf("draw the results: %w", err)
		}
	}
	return nil
}

// barColours can be told apart by the colour-blind, too.
var barColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// svg draws from the left to the right, a legend above. Lengths are in the units of the view box, which a reader sees as pixels.
func (p plot) svg() string {
	const left, below, barWidth, gap, high, line = 80, 30, 22, 26, 320, 18
	top := 40 + line*len(p.series)
	width := left + gap
	for _, g := range p.groups {
		width += max(len(g.bars)*barWidth, 7*len(g.name)) + gap
	}
	width = max(width, 480)
	y, ticks := p.scale(float64(top), high)
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, width, top+high+below)
	write(`<text x="%d" y="22" font-size="15">%s</text>`, left, html.EscapeString(p.title))
	for n, name := range p.series {
		write(`<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`, left, 34+n*line, barColours[n%len(barColours)], left+18, 44+n*line, html.EscapeString(name))
	}
	for _, tick := range ticks {
		write(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`, left, width, y(tick), y(tick), left-6, y(tick)+4, tick)
	}
	x := left + gap
	for _, g := range p.groups {
		room := max(len(g.bars)*barWidth, 7*len(g.name))
		write(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, x+room/2, top+high+20, html.EscapeString(g.name))
		at := x + (room-len(g.bars)*barWidth)/2
		for _, bar := range g.bars {
			colour := barColours[slices.Index(p.series, bar.series)%len(barColours)]
			write(`<rect class="bar" x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s: %s (%s-%s)</title></rect>`, at, y(bar.median), barWidth-4, float64(top+high)-y(bar.median),
				colour, html.EscapeString(bar.series), number(bar.median), number(bar.min), number(bar.max))
			write(`<line class="whisker" x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#000"/>`, at+barWidth/2-2, at+barWidth/2-2, y(bar.min), y(bar.max))
			at += barWidth
		}
		x += room + gap
	}
	write(`</svg>`)
	return b.String()
}

// scale is where a value stands below top in so much height, and the values at which lines are drawn.
func (p plot) scale(top, high float64) (y func(float64) float64, ticks []float64) {
	least, most := math.Inf(1), 0.0
	for _, g := range p.groups {
		for _, bar := range g.bars {
			most = max(most, bar.max)
			if bar.min > 0 {
				least = min(least, bar.min)
			}
		}
	}
	if most == 0 {
		most, least = 1, 1
	}
	if p.logarithmic {
		lowest, highest := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		lowest = min(lowest, highest-1)
		for e := lowest; e <= highest; e++ {
			ticks = append(ticks, math.Pow(10, e))
		}
		return func(v float64) float64 {
			return top + high*(highest-math.Log10(max(v, ticks[0])))/(highest-lowest)
		}, ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	switch { // so that there are some five lines
	case most < 2*step:
		step /= 5
	case most < 4*step:
		step /= 2
	}
	for v := 0.0; v < most+step; v += step {
		ticks = append(ticks, v)
	}
	return func(v float64) float64 { return top + high*(1-v/ticks[len(ticks)-1]) }, ticks
}

// Breaks it catches: a plot that no program can read, because of a name or a value of 0, and one that leaves a scenario or a relay
// out. Seen to fail with a title that is not escaped, with the logarithm of 0, and with relays left out that are compared.
func TestPlotsAreWellFormedAndComplete(t *testing.T) {
	r := &result{Commit: "a<b&c"}
	for _, name := range []string{"drain-100", "drain-<1>"} {
		r.add(name, "", [][]sample{
			{{relayRate, 100_000, mark{}}, {clientFloor, 150_000, mark{}}, {loopFloor, 0, mark{}}, {"x", 1, mark{}}},
			{{relayRate, 90_000, mark{}}, {clientFloor, 170_000, mark{}}, {loopFloor, 0, mark{}}, {"x", 1, mark{}}},
		}, 0)
	}
	r.add("paced-200", "", [][]sample{{
		{`a & "b": ` + relayLatency + "p50 ms", 0, mark{}}, {`a & "b": ` + relayLatency + "p95 ms", 3, mark{}}, {relayLatency + "p99 ms", 1000, mark{}},
	}}, 0)
	directory := filepath.Join(t.TempDir(), "plots")
	if err := r.draw(directory); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"drains.svg": 6, "paces.svg": 3} {
		file, err := os.Open(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		marks, err := readMarks(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if marks["bar"] != want || marks["whisker"] != want {
			t.Errorf("%s: got %v, want %d of each", name, marks, want)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// readMarks reads the whole of a plot and counts its bars and whiskers; none may have an edge that is no number, or below 0.
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
