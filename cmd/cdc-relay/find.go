package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

type findCommand struct {
	ask.Outbox
	IDs              []string
	Aggregate, Since string
	Limit            int
}

func (c *findCommand) command() *cobra.Command {
	cmd := cli.Command("find", "Say where an event is, and what to do about it.",
		`Show where each event is (waiting in the table, in flight, parked, a dead letter, published) and what to
do about it. It works with and without a running relay, and for rows that are deleted. Exit code 1 if an event is
unknown.

Examples:

  cdc-relay find 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01

  cdc-relay find --aggregate order/42 --since 24h --json`, c.Run)
	f := cmd.Flags()
	cli.Arguments(cmd, "id", "Ids of events.", &c.IDs)
	f.Var(&cli.TextFlag{Into: &c.Aggregate, Shown: "TYPE/ID", NotEmpty: true}, "aggregate", "All events of this "+
		"aggregate.")
	f.Var(&cli.TextFlag{Into: &c.Since, Shown: "AGE", NotEmpty: true}, "since", "With --aggregate: only rows "+
		"created since: 90s, 24h, 7d.")
	f.IntVar(&c.Limit, "limit", 50, "With --aggregate: how many, 1 to 1000.")
	c.Outbox.AddTo(cmd)
	return cmd
}

// Run looks for events.
func (c *findCommand) Run(a *cli.App) error {
	kind, id, whole := strings.Cut(c.Aggregate, "/")
	if (len(c.IDs) > 0) == (c.Aggregate != "") || c.Aggregate != "" && !whole {
		a.Wrong("", fmt.Sprintf("found %d ids and --aggregate %q", len(c.IDs), c.Aggregate),
			"ids of events, or --aggregate TYPE/ID")
	}
	var since store.Age
	if c.Since != "" {
		var err error
		if since, err = store.ParseAge(c.Since); err != nil {
			a.Wrong("--since", fmt.Sprintf("found %q", c.Since), "a duration above zero such as 90s, 24h or 7d")
		}
	}
	ask.Page{Limit: c.Limit}.Check(a)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.OpenOne(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	if c.Aggregate != "" {
		if c.IDs, err = st.OfAggregate(ctx, kind, id, time.Duration(since), c.Limit); err != nil {
			return ask.BadFilter(err)
		}
	}
	found, err := c.Find(ctx, st, cfg, c.IDs)
	if err != nil {
		return ask.BadFilter(err)
	}
	if a.JSON {
		err = a.PrintJSON(found)
	} else {
		show.Whereabouts(a, found)
	}
	if err == nil && unknown(found.Items) {
		err = cli.ErrFailed
	}
	return err
}

// unknown reports that nothing is known of an event, or that there is none.
func unknown(found []store.Found) bool {
	for _, f := range found {
		if f.State == store.FoundNothing {
			return true
		}
	}
	return len(found) == 0
}
