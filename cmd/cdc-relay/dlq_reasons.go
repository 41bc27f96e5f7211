package main

import (
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

func dlqReasons() *cobra.Command {
	var choose ask.Choose
	state := store.DeadOpen
	cmd := cli.Command("reasons", "Count dead letters by reason.",
		`Lists dead letters by class and code, with their number and the newest. Act on a group with --code.

Examples:

  cdc-relay dlq reasons

  cdc-relay dlq reasons --newer-than 1h --json

  cdc-relay dlq replay --code TOPIC_LIMIT`,
		func(a *cli.App) error { return printReasons(a, choose, state) }, &choose)
	cmd.Flags().Var(&cli.TextFlag{Into: &state, Offered: store.DeadStates}, "state",
		"Which: open, replayed, discarded or all.")
	return cmd
}

func printReasons(a *cli.App, choose ask.Choose, state string) error {
	f := choose.ToList(a)
	a.OneOf("--state", state, store.DeadStates)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, _, err := choose.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	reasons, err := st.DeadReasons(ctx, f, state)
	switch {
	case err != nil:
		return ask.BadFilter(err)
	case a.JSON:
		return a.PrintJSON(map[string][]store.DeadReason{"items": reasons})
	case len(reasons) == 0:
		cli.Fprintln(a.Out, "no dead letters")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	cli.Fprintln(w, "COUNT\tCLASS\tCODE\tNEWEST\tREASON OF THE NEWEST")
	now := time.Now()
	for _, r := range reasons {
		cli.Fprintf(w, "%d\t%s\t%s\t%s\t%.100s\n", r.Count, r.Class, cli.Plain(r.Code), cli.Ago(r.Newest, now),
			cli.Plain(r.LastError))
	}
	return w.Flush()
}
