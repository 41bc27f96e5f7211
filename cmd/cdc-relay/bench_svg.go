package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
)

// writeLatencies draws the latencies of paced, a line per rate: the medians of the runs, on a logarithmic scale.
func writeLatencies(path string, r benchReport) error {
	const width, height, left, bottom, top = 720, 400, 64, 48, 40
	names := []string{"p50", "p95", "p99", "p99.9", "max"}
	picks := []func(benchRun) float64{
		func(o benchRun) float64 { return o.P50 }, func(o benchRun) float64 { return o.P95 },
		func(o benchRun) float64 { return o.P99 }, func(o benchRun) float64 { return o.P999 }, func(o benchRun) float64 { return o.Most },
	}
	const lowest, highest = .1, 10_000.0 // ms
	x := func(i int) float64 { return left + float64(i)*(width-left-170)/float64(len(names)-1) }
	y := func(ms float64) float64 {
		share := (math.Log10(min(max(ms, lowest), highest)) - math.Log10(lowest)) / (math.Log10(highest) - math.Log10(lowest))
		return height - bottom - share*(height-bottom-top)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">COMMIT to consumer, ms (cdc-relay %s)</text>`, left, html.EscapeString(r.Version))
	for ms := lowest; ms <= highest; ms *= 10 {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`, left, width-150, y(ms), y(ms), left-8, y(ms)+4, ms)
	}
	for i, name := range names {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(i), height-bottom+20, name)
	}
	colours := []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"} // told apart by the colour-blind, too
	line := 0
	for _, s := range r.Scenarios {
		if s.Name != "paced" {
			continue
		}
		colour := colours[line%len(colours)]
		var points []string
		for i, pick := range picks {
			values := make([]float64, len(s.Runs))
			for j, o := range s.Runs {
				values[j] = pick(o)
			}
			slices.Sort(values)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(median(values))))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%d commits/s</text>`, width-140, top+20+line*18, colour, s.Rate)
		line++
	}
	b.WriteString("</svg>\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}
