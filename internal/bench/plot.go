package bench

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
)

// Plot is bars with whiskers, in groups: a group for each scenario, a bar for each of its figures.
type Plot struct {
	Title       string
	Logarithmic bool
	Series      []string // one colour each
	Groups      []Group
}

// Group is the bars of one scenario.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is the median of one of the series; its whisker is the range of the runs.
type Bar struct {
	Series string
	Summary
}

// barColours can be told apart by the colour-blind, too.
var barColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// SVG draws from the left to the right, a legend above. Lengths are in the units of the view box, which a reader sees
// as pixels.
func (p Plot) SVG() string {
	const left, below, barWidth, gap, high, line = 80, 30, 22, 26, 320, 18
	top := 40 + line*len(p.Series)
	width := left + gap
	for _, g := range p.Groups {
		width += max(len(g.Bars)*barWidth, 7*len(g.Name)) + gap
	}
	width = max(width, 480)
	y, ticks := p.scale(float64(top), high)
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width,
		top+high+below)
	write(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	write(`<text x="%d" y="22" font-size="15">%s</text>`, left, html.EscapeString(p.Title))
	for n, name := range p.Series {
		write(`<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`,
			left, 34+n*line, barColours[n%len(barColours)], left+18, 44+n*line, html.EscapeString(name))
	}
	for _, tick := range ticks {
		write(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`,
			left, width, y(tick), y(tick), left-6, y(tick)+4, tick)
	}
	x := left + gap
	for _, g := range p.Groups {
		room := max(len(g.Bars)*barWidth, 7*len(g.Name))
		write(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, x+room/2, top+high+20, html.EscapeString(g.Name))
		at := x + (room-len(g.Bars)*barWidth)/2
		for _, bar := range g.Bars {
			colour := barColours[slices.Index(p.Series, bar.Series)%len(barColours)]
			write(`<rect class="bar" x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s: %s (%s-%s)</title></rect>`,
				at, y(bar.Median), barWidth-4, float64(top+high)-y(bar.Median), colour, html.EscapeString(bar.Series),
				Number(bar.Median), Number(bar.Min), Number(bar.Max))
			write(`<line class="whisker" x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#000"/>`,
				at+barWidth/2-2, at+barWidth/2-2, y(bar.Min), y(bar.Max))
			at += barWidth
		}
		x += room + gap
	}
	write(`</svg>`)
	return b.String()
}

// scale is where a value stands below top in so much height, and the values at which lines are drawn.
func (p Plot) scale(top, high float64) (y func(float64) float64, ticks []float64) {
	least, most := math.Inf(1), 0.0
	for _, g := range p.Groups {
		for _, bar := range g.Bars {
			most = max(most, bar.Max)
			if bar.Min > 0 {
				least = min(least, bar.Min)
			}
		}
	}
	if most == 0 {
		most, least = 1, 1
	}
	if p.Logarithmic {
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

// Draw writes a plot of the latencies of the paced scenarios, a group for each rate.
func (r Report) Draw(path string) error {
	p := Plot{Title: "COMMIT to consumer, ms (cdc-relay " + r.Version + ")", Logarithmic: true}
	p.Series = []string{"p50", "p95", "p99", "p99.9", "max"}
	picks := []func(Outcome) float64{
		func(o Outcome) float64 { return o.P50 }, func(o Outcome) float64 { return o.P95 },
		func(o Outcome) float64 { return o.P99 }, func(o Outcome) float64 { return o.P999 },
		func(o Outcome) float64 { return o.Most },
	}
	for _, s := range r.Scenarios {
		if s.Name != Paced {
			continue
		}
		g := Group{Name: fmt.Sprintf("%d commits/s", s.Rate)}
		for n, name := range p.Series {
			g.Bars = append(g.Bars, Bar{Series: name, Summary: s.Over(picks[n])})
		}
		p.Groups = append(p.Groups, g)
	}
	return p.Write(path)
}

// Over summarizes one figure of the runs.
func (s Scenario) Over(pick func(Outcome) float64) Summary {
	var values []float64
	for _, o := range s.Runs {
		values = append(values, pick(o))
	}
	return Summarize(values)
}

// Write writes the plot into a file.
func (p Plot) Write(path string) error {
	if err := os.WriteFile(path, []byte(p.SVG()), 0o644); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// Number is a figure for people, with three or more digits.
func Number(v float64) string {
	switch {
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
