package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// dlqCommand groups the commands for dead letters.
func dlqCommand() *cobra.Command {
	return cli.Group("dlq", "Dead letters: list, reasons, show, replay, edit, discard.",
		`Events that could not be published are kept as dead letters, with payload and reason.

Examples:

  cdc-relay dlq list --older-than 24h

  cdc-relay dlq replay --all --note "topic is back"`,
		new(dlqListCommand).command(),
		dlqReasons(),
		dlqShow(),
		dlqReplay(),
		new(dlqEditCommand).command(),
		dlqDiscard(),
	)
}

func dlqReplay() *cobra.Command {
	var c ask.Chosen
	return cli.Command("replay", "Publish dead letters after all, in the order of their keys.",
		`Each event goes back to its place among the parked events, so the events of a key keep their order, and is
sent with the header x-outbox-replay. Newer events of its key may have been published before it. A running relay does
it at once; otherwise the next one to start does.

Those of a key stay behind one in front of them that dies again: they are not sent, and are open dead letters as before.

The command waits for the outcome, 30s unless --timeout says otherwise, and says how many were published, are parked,
died again, or stayed behind, and why. Exit code 1 if one died again. With --no-wait it only queues the request.

Examples:

  cdc-relay dlq replay 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01

  cdc-relay dlq replay --topic outbox.event.order --newer-than 2h --note "limit raised"

  cdc-relay dlq replay --all`,
		func(a *cli.App) error { return ask.Change{Kind: store.RequestReplay, What: "dead letters"}.Do(a, c) }, &c)
}

func dlqDiscard() *cobra.Command {
	var c ask.Chosen
	yes := false
	cmd := cli.Command("discard", "Close dead letters permanently.",
		`Discarded events are never published. Their rows stay, with who discarded them, when and why. The command asks
for confirmation; without a terminal it needs --yes.

Examples:

  cdc-relay dlq discard --type test --note "test data"

  cdc-relay dlq discard --all --older-than 30d --yes --note "no longer needed"`,
		func(a *cli.App) error {
			confirm := func(n int64) error {
				return a.Confirm(yes, "discard", fmt.Sprintf("This discards %d dead letters: they are never published.", n))
			}
			return ask.Change{Kind: store.RequestDiscard, What: "dead letters", Confirm: confirm}.Do(a, c)
		}, &c)
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask for confirmation.")
	return cmd
}

type dlqListCommand struct {
	ask.Choose
	ask.Page
	State string
}

func (c *dlqListCommand) command() *cobra.Command {
	cmd := cli.Command("list", "List dead letters, newest first.",
		`Examples:

  cdc-relay dlq list

  cdc-relay dlq list --topic outbox.event.order --class permanent --limit 20

  cdc-relay dlq list --state discarded --newer-than 7d --json

  cdc-relay dlq list --all --state all`, c.Run)
	c.State = "open"
	c.Choose.AddTo(cmd)
	c.Page.AddTo(cmd)
	cmd.Flags().Var(&cli.TextFlag{Into: &c.State, Offered: []string{"open", "replayed", "discarded", "all"}}, "state",
		"Which: open, replayed, discarded or all.")
	return cmd
}

// Run prints one page, or all.
func (c *dlqListCommand) Run(a *cli.App) error {
	a.OneOf("--state", c.State, store.DeadStates)
	read := func(ctx context.Context, st *store.Store, f store.Filter, after string,
		limit int) (store.Page[store.DeadLetter], error) {
		return st.DeadLetters(ctx, f, c.State, after, limit)
	}
	line := func(w io.Writer, d *store.DeadLetter, now time.Time) {
		cli.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cli.Plain(d.ID), d.Topic, cli.Text(d.Key),
			cli.Text(d.EventType), d.Class, cli.Plain(d.Code), cli.Ago(d.DeadAt, now), ask.StateOf(d))
	}
	const columns = "ID\tTOPIC\tKEY\tTYPE\tCLASS\tCODE\tDIED\tSTATE"
	list := ask.List[store.DeadLetter]{None: "no dead letters", Columns: columns, Read: read, Line: line,
		Outbox: func(d *store.DeadLetter) string { return d.Outbox }}
	return list.Print(a, c.Choose, c.Page)
}

func dlqShow() *cobra.Command {
	var id string
	var of ask.Outbox
	cmd := cli.Command("show", "Show one dead letter with its payload.", `Example:

  cdc-relay dlq show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01`, func(a *cli.App) error { return showDead(a, of, id) },
		&of)
	cli.Argument(cmd, "id", "Id of the event.", &id)
	return cmd
}

func showDead(a *cli.App, of ask.Outbox, id string) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, _, err := of.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := st.DeadLetter(ctx, id)
	if err != nil {
		return ask.BadFilter(err)
	}
	if a.JSON {
		return a.PrintJSON(d)
	}
	show.DeadLetter(a, d)
	return nil
}
