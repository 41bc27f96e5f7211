package show

import (
	"cmp"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Named is the status of one of several relays.
type Named struct {
	Relay string `json:"relay"`
	relay.Status
}

// Relays prints a line for each relay of a process, those that need a look first, and why below them.
func Relays(a *cli.App, relays []Named) {
	needs := func(r Named) int {
		switch {
		case !r.Ready:
			return 0
		case len(r.Reasons) > 0 || len(r.Degraded) > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(relays, func(a, b Named) int {
		return cmp.Or(cmp.Compare(needs(a), needs(b)), cmp.Compare(a.Relay, b.Relay))
	})
	if len(relays) == 0 {
		cli.Fprintf(a.Out, "no relay: the directory of --config-dir has no *.yaml file\n")
		return
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	cli.Fprintf(w, "RELAY\tSTATE\tSLOT\tEVENTS/S\tBACKLOG\tOLDEST\tPARKED\tDEAD\n")
	for _, r := range relays {
		rate := "-"
		if r.Rates != nil {
			rate = fmt.Sprintf("%.1f", r.Rates.Published)
		}
		cli.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cli.Plain(r.Relay), r.State, cmp.Or(r.Slot, "-"), rate,
			cli.Figure(r.Backlog, cli.Whole), cli.Figure(r.OldestPending, seconds), cli.Figure(r.ParkedEvents, cli.Whole),
			cli.Figure(r.DeadLetters, cli.Whole))
	}
	_ = w.Flush() // a.Out remembers its errors
	for _, r := range relays {
		for _, why := range r.Reasons {
			cli.Fprintf(a.Out, "%s: %s\n", cli.Plain(r.Relay), a.Paint(cli.Red, cli.Plain(why)))
		}
		for _, d := range r.Degraded {
			cli.Fprintf(a.Out, "%s: %s\n", cli.Plain(r.Relay), a.Paint(cli.Yellow, d.Reason+": "+cli.Plain(d.Text)))
		}
		if r.Halt != nil {
			cli.Fprintf(a.Out, "%s: to do: %s\n", cli.Plain(r.Relay), cli.Plain(r.Halt.Remedy))
		}
	}
}
