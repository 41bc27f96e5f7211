package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/consumers"
	"github.com/cdc-relay/cdc-relay/store"
)

// inboxCommand is what can be done about events that consumers hold back.
type inboxCommand struct {
	List    inboxListCommand    `cmd:"" help:"List consumers, or the parked events and dead letters of one."`
	Show    inboxShowCommand    `cmd:"" help:"Show one event of a consumer with its payload."`
	Replay  inboxReplayCommand  `cmd:"" help:"Have a consumer try dead letters again, or parked events at once."`
	Discard inboxDiscardCommand `cmd:"" help:"Close a consumer's dead letters or parked events for good."`
}

func (inboxCommand) Help() string {
	return `A consumer that uses the inbox parks an event that fails, with those of its key behind it, and gives it up
after its last attempt. Both are in the consumer's database: name it by inbox.url, if it is not the relay's own.

Examples:

  cdc-relay inbox list --inbox-url postgres://billing@db/billing

  cdc-relay inbox replay --consumer billing --all --note "customers are back"`
}

type inboxListCommand struct {
	Consumer string `help:"Events of this consumer; without it the consumers are listed." placeholder:"NAME"`
	State    string `help:"Which: dead, parked, replayed or discarded." default:"dead" values:"dead,parked,replayed,discarded"`

	ask.ChooseHeld `embed:""`
	ask.Page       `embed:""`
}

func (inboxListCommand) Help() string {
	return `Dead letters come newest first. Parked keys are told by the first event of each, which the others wait for; an
id finds any of them.

Examples:

  cdc-relay inbox list

  cdc-relay inbox list --consumer billing --state parked

  cdc-relay inbox list --consumer billing --type OrderPlaced --newer-than 24h --json`
}

// Run prints the consumers, or one page of events, or all.
func (c inboxListCommand) Run(a *cli.App) error {
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
	ID       string `arg:"" help:"Id of the event."`
	Consumer string `help:"Name of the consumer." placeholder:"NAME" required:""`
}

func (inboxShowCommand) Help() string {
	return `Example:

  cdc-relay inbox show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing`
}

// Run prints one event.
func (c inboxShowCommand) Run(a *cli.App) error {
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

type inboxReplayCommand struct {
	Consumer string `help:"Name of the consumer." placeholder:"NAME" required:""`
	State    string `help:"Which: dead or parked." default:"dead" values:"dead,parked"`

	ask.ChooseHeld `embed:""`
	ask.All        `embed:""`
	ask.Hand       `embed:""`
}

func (inboxReplayCommand) Help() string {
	return `A dead letter is parked again and due at once; the running consumer takes it within seconds. Later events of
its key may have had their effects before it. A parked event becomes due at once with those of its key in front of it;
it and those behind it keep their order.

Examples:

  cdc-relay inbox replay 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing --note "customer created"

  cdc-relay inbox replay --consumer billing --state parked --all`
}

// Run has events tried again.
func (c inboxReplayCommand) Run(a *cli.App) error {
	return ask.ChangeHeld{Kind: consumers.Replay, Consumer: c.Consumer, State: c.State, Past: "replayed"}.Do(
		a, c.ChooseHeld, c.All, c.Hand)
}

type inboxDiscardCommand struct {
	Consumer string `help:"Name of the consumer." placeholder:"NAME" required:""`
	State    string `help:"Which: dead or parked." default:"dead" values:"dead,parked"`

	ask.ChooseHeld `embed:""`
	ask.All        `embed:""`
	ask.Hand       `embed:""`
	Yes            bool `help:"Do not ask for confirmation."`
}

func (inboxDiscardCommand) Help() string {
	return `Discarded events never have their effect. Their rows stay, with who discarded them, when and why; what waited
behind a parked one goes on. The command asks for confirmation; without a terminal it needs --yes.

Examples:

  cdc-relay inbox discard 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --consumer billing --note "test order"

  cdc-relay inbox discard --consumer billing --all --older-than 30d --yes`
}

// Run closes events for good.
func (c inboxDiscardCommand) Run(a *cli.App) error {
	confirm := func(n int64) error {
		return a.Confirm(c.Yes, "discard", fmt.Sprintf("This discards %d events of %s: they never have their effect.", n,
			cli.Plain(c.Consumer)))
	}
	change := ask.ChangeHeld{Kind: consumers.Discard, Consumer: c.Consumer, State: c.State, Past: "discarded",
		Confirm: confirm}
	return change.Do(a, c.ChooseHeld, c.All, c.Hand)
}
