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
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// inboxCommand groups the commands for events that consumers hold back.
func inboxCommand() *cobra.Command {
	return cli.Group("inbox", "List, show, replay and discard parked events and dead letters of consumers.",
		`A consumer that uses the inbox parks an event that fails, with those of its key behind it, and gives it up
after its last attempt. Both are in the consumer's database: name it by inbox.url, if it is not the relay's own.

Examples:

  cdc-relay inbox list --inbox-url postgres://billing@db/billing

  cdc-relay inbox replay --consumer billing --all --note "customers are back"`,
		new(inboxListCommand).command(),
		new(inboxShowCommand).command(),
		inboxReplay(),
		inboxDiscard(),
	)
}

type inboxListCommand struct {
	Consumer, State string
	ask.ChooseHeld
	ask.Page
}

func (c *inboxListCommand) command() *cobra.Command {
	cmd := cli.Command("list", "List consumers, or the parked events and dead letters of one.",
		`Dead letters come newest first. A parked key is listed by its first event, which the others wait for; an
id finds any of them.

Examples:

  cdc-relay inbox list

  cdc-relay inbox list --consumer billing --state parked

  cdc-relay inbox list --consumer billing --type OrderPlaced --newer-than 24h --json`, c.Run)
	f := cmd.Flags()
	c.State = "dead"
	f.Var(&cli.TextFlag{Into: &c.Consumer, Shown: "NAME", NotEmpty: true}, "consumer",
		"Events of this consumer; without it the consumers are listed.")
	f.Var(&cli.TextFlag{Into: &c.State, Offered: []string{"dead", "parked", "replayed", "discarded"}}, "state",
		"Which: dead, parked, replayed or discarded.")
	c.ChooseHeld.AddTo(cmd)
	c.Page.AddTo(cmd)
	return cmd
}

// Run prints the consumers, or one page of events, or all.
func (c *inboxListCommand) Run(a *cli.App) error {
	a.OneOf("--state", c.State, consumers.States)
	filter := c.Filter(a)
	c.Check(a)
	if c.Consumer == "" && len(c.IDs) > 0 {
		a.Wrong("--consumer", "not set", "the consumer whose events the ids name")
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	d, err := ask.OpenInbox(ctx, a)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Consumer == "" {
		return c.consumers(ctx, a, d)
	}
	page, err := ask.Pages(c.Page, func(after string, limit int) (store.Page[consumers.Event], error) {
		return d.Events(ctx, c.Consumer, c.State, filter, after, limit)
	})
	if err != nil {
		return ask.BadFilter(err)
	}
	if a.JSON {
		return a.PrintJSON(page)
	}
	columns := "ID\tTOPIC\tKEY\tTYPE\tCLASS\tATTEMPTS\tDIED\tSTATE\tERROR"
	if c.State == consumers.Parked {
		columns = "ID\tTOPIC\tKEY\tTYPE\tEVENTS\tATTEMPTS\tPARKED\tNEXT\tERROR"
	}
	return ask.Table(a, page, "no event is "+c.State, columns, show.HeldLine)
}

func (c inboxListCommand) consumers(ctx context.Context, a *cli.App, d *consumers.Desk) error {
	all, err := d.Consumers(ctx)
	if err != nil {
		return err
	}
	page := store.Page[consumers.Consumer]{Items: append([]consumers.Consumer{}, all...)}
	if a.JSON {
		return a.PrintJSON(page)
	}
	const columns = "CONSUMER\tPARKED\tKEYS\tSINCE\tDEAD\tPARTITIONS\tPROGRESS"
	return ask.Table(a, page, "the inbox has no consumer yet", columns,
		func(w io.Writer, c *consumers.Consumer, now time.Time) {
			cli.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%s\n", cli.Plain(c.Name), c.Parked, c.ParkedKeys,
				show.AgoOr(c.ParkedSince, now), c.DeadLetters, c.Partitions, show.AgoOr(c.ProgressAt, now))
		})
}

type inboxShowCommand struct {
	ID, Consumer string
}

func (c *inboxShowCommand) command() *cobra.Command {
	cmd := cli.Command("show", "Show one event of a consumer with its payload.",
		`Example:

  cdc-relay inbox show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing`, c.Run)
	cli.Argument(cmd, "id", "Id of the event.", &c.ID)
	cmd.Flags().Var(&cli.TextFlag{Into: &c.Consumer, Shown: "NAME", NotEmpty: true}, "consumer", "Name of the consumer.")
	_ = cmd.MarkFlagRequired("consumer")
	return cmd
}

// Run prints one event.
func (c *inboxShowCommand) Run(a *cli.App) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	d, err := ask.OpenInbox(ctx, a)
	if err != nil {
		return err
	}
	defer d.Close()
	w, err := d.Event(ctx, c.Consumer, c.ID)
	if err != nil {
		return ask.BadFilter(err)
	}
	if a.JSON {
		return a.PrintJSON(w)
	}
	show.Held(a, w)
	return nil
}

func inboxReplay() *cobra.Command {
	c := ask.ChangeHeld{Kind: consumers.Replay, Past: "replayed"}
	return cli.Command("replay", "Have a consumer try dead letters again, or parked events at once.",
		`A dead letter is parked again and due at once; the running consumer takes it within seconds. Later events of
its key may have had their effects before it. A parked event becomes due at once with those of its key in front of it;
it and those behind it keep their order.

Examples:

  cdc-relay inbox replay 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing --note "customer created"

  cdc-relay inbox replay --consumer billing --state parked --all`,
		c.Do, &c)
}

func inboxDiscard() *cobra.Command {
	c, yes := ask.ChangeHeld{Kind: consumers.Discard, Past: "discarded"}, false
	cmd := cli.Command("discard", "Close a consumer's dead letters or parked events permanently.",
		`Discarded events never have their effect. Their rows stay, with who discarded them, when and why; what waited
behind a parked one goes on. The command asks for confirmation; without a terminal it needs --yes.

Examples:

  cdc-relay inbox discard 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing --note "test order"

  cdc-relay inbox discard --consumer billing --all --older-than 30d --yes`,
		func(a *cli.App) error {
			c.Confirm = func(n int64) error {
				return a.Confirm(yes, "discard", fmt.Sprintf("This discards %d events of %s: they never have their effect.", n,
					cli.Plain(c.Consumer)))
			}
			return c.Do(a)
		}, &c)
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask for confirmation.")
	return cmd
}
