package show

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/bench"
)

// Scenario prints what a scenario of a benchmark came to: medians, and the range of the runs.
func Scenario(a *cli.App, s bench.Scenario) {
	cli.Fprintf(a.Out, "%s\n", s.Title)
	line := func(name, format string, pick func(bench.Outcome) float64) {
		f := s.Over(pick)
		if f.Max == 0 {
			return
		}
		text := fmt.Sprintf(format, f.Median)
		if len(s.Runs) > 1 {
			text += a.Paint(cli.Faint, fmt.Sprintf("  ("+format+" – "+format+")", f.Min, f.Max))
		}
		cli.Fprintf(a.Out, "  %-44s %s\n", name, text)
	}
	line("events per second", "%.0f", func(r bench.Outcome) float64 { return r.Rate })
	line("the stream alone, events per second", "%.0f", func(r bench.Outcome) float64 { return r.Floor })
	line("relay / stream alone", "%.2f", func(r bench.Outcome) float64 { return ratio(r.Rate, r.Floor) })
	line("CPU seconds per million events", "%.1f", func(r bench.Outcome) float64 { return r.CPU })
	line("the stream alone, CPU seconds per million", "%.1f", func(r bench.Outcome) float64 { return r.FloorCPU })
	line("peak resident memory, MiB", "%.0f", func(r bench.Outcome) float64 { return r.PeakMiB })
	line("COMMIT to consumer, p50, ms", "%.2f", func(r bench.Outcome) float64 { return r.P50 })
	line("COMMIT to consumer, p95, ms", "%.2f", func(r bench.Outcome) float64 { return r.P95 })
	line("COMMIT to consumer, p99, ms", "%.2f", func(r bench.Outcome) float64 { return r.P99 })
	line("COMMIT to consumer, p99.9, ms", "%.2f", func(r bench.Outcome) float64 { return r.P999 })
	var sum bench.Outcome
	for _, r := range s.Runs {
		sum.Events += r.Events
		sum.Missing, sum.Duplicated = sum.Missing+r.Missing, sum.Duplicated+r.Duplicated
		sum.OutOfOrder, sum.Different = sum.OutOfOrder+r.OutOfOrder, sum.Different+r.Different
	}
	verdict := fmt.Sprintf("%d events: lost %d, duplicated %d, out of order %d, different %d",
		sum.Events, sum.Missing, sum.Duplicated, sum.OutOfOrder, sum.Different)
	colour := cli.Green
	if sum.Wrong() {
		colour, verdict = cli.Red, "WRONG, so the figures do not count. "+verdict
	}
	cli.Fprintf(a.Out, "  %s\n\n", a.Paint(colour, verdict))
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
