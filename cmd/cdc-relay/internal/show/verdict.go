package show

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
)

// Verdict prints the outcome of an audit.
func Verdict(a *cli.App, v *audit.Verdict) {
	count := func(name string, n int, colour, note string) {
		text := fmt.Sprintf("%-14s %d", name, n)
		if n > 0 && colour != "" {
			text = a.Paint(colour, text)
		}
		if n > 0 && note != "" {
			text += "  " + note
		}
		cli.Fprintln(a.Out, text)
	}
	count("rows", v.Rows, "", "")
	count("expected", v.Expected, "", "")
	count("records", v.Records, "", "")
	missing := fmt.Sprintf("%d of them not published yet, by the relay's own tables; %d lost by the topics", v.Pending,
		v.Lost)
	if v.Repaired != nil {
		count("were missing", v.Missing, "", "before the repair; "+missing)
		count("repaired", int(*v.Repaired), cli.Green, "published once more, with the header x-outbox-replay")
		count("still missing", int(v.Left()), cli.Red, "")
	} else {
		count("missing", v.Missing, cli.Red, missing)
	}
	if v.Repaired == nil && v.Lost > 0 {
		cli.Fprintln(a.Out, "               --repair publishes lost events again")
	}
	count("different", v.Different, cli.Red, "value, key or topic")
	count("duplicated", v.Duplicated, cli.Yellow, "")
	count("out of order", v.OutOfOrder, cli.Yellow, "per key, in the table's order")
	count("misplaced", v.Misplaced, cli.Yellow, "in a topic, but not where the journal has them")
	count("parked", v.Parked, cli.Yellow, "wait for a retry")
	if v.Spooled > 0 {
		count("spooled", int(v.Spooled), cli.Yellow, "stored in cdc_relay_spool until they can be sent")
	}
	count("dead", v.Dead, cli.Yellow, "dead letters")
	count("not judged", v.Unjudged, cli.Faint, "published without a journal row: before the first start, or pruned")
	count("expired", v.Expired, cli.Faint, "removed by the topic's retention or compaction")
	count("other records", v.Others, cli.Faint, "of no row in the range")
	for _, kind := range slices.Sorted(maps.Keys(v.Examples)) {
		for _, example := range v.Examples[kind] {
			cli.Fprintf(a.Out, "  %s: %s\n", kind, example)
		}
	}
	for _, note := range v.Notes {
		cli.Fprintln(a.Out, "note: "+note)
	}
}
