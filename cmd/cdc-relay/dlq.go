package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/edit"
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

type dlqEditCommand struct {
	ID, PayloadFile, HeadersFile string
	Tombstone, NoReplay          bool
	ask.Flags
}

func (c *dlqEditCommand) command() *cobra.Command {
	cmd := cli.Command("edit", "Change what a dead letter sends, and replay it.",
		`Opens payload and headers in $VISUAL or $EDITOR, or takes them from files, and replays the event with them:
under its id, at its place, to its topic and key. Its row in the outbox stays as it is.

What was there before is kept in the relay's tables, with who changed it, when and why; dlq show tells it. The change
and the request for the replay are one transaction.

Examples:

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --note "amount was negative"

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --payload-file fixed.json --no-replay`, c.Run)
	f := cmd.Flags()
	cli.Argument(cmd, "id", "Id of the event.", &c.ID)
	f.StringVar(&c.PayloadFile, "payload-file", "", "The new payload, as bytes.")
	f.StringVar(&c.HeadersFile, "headers-file", "", "The new headers, a JSON object of strings; an "+
		"empty file is none.")
	f.BoolVar(&c.Tombstone, "tombstone", false, "Send no payload: SQL NULL.")
	f.BoolVar(&c.NoReplay, "no-replay", false, "Only change it; replay it later.")
	c.Flags.AddTo(cmd)
	cmd.MarkFlagsMutuallyExclusive("payload-file", "tombstone")
	return cmd
}

// Run changes one dead letter, and asks for its replay.
func (c *dlqEditCommand) Run(a *cli.App) error {
	c.Flags.Check(a)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := st.DeadLetter(ctx, c.ID)
	if err != nil {
		return ask.BadFilter(err)
	}
	if state := ask.StateOf(&d.DeadLetter); state != "open" {
		return fmt.Errorf("the dead letter cannot be edited: it is %s", cli.Plain(state))
	}
	request, changed, err := c.change(ctx, a, st, d)
	switch {
	case err != nil:
		return err
	case !changed && !a.JSON:
		cli.Fprintln(a.Out, "nothing was changed; the dead letter stays as it is")
		return nil
	case !changed:
		return a.PrintJSON(d)
	case c.NoReplay && a.JSON:
		if d, err = st.DeadLetter(ctx, c.ID); err != nil {
			return err
		}
		return a.PrintJSON(d)
	case c.NoReplay:
		cli.Fprintf(a.Out, "edit: done; it is not replayed: cdc-relay dlq replay %s\n", cli.Plain(c.ID))
		return nil
	case !a.JSON:
		cli.Fprintf(a.Out, "edit: done; what was there before: cdc-relay dlq show %s\n", cli.Plain(c.ID))
	}
	return ask.Await(ctx, a, st, cfg.Postgres.Slot, c.Flags, request)
}

// change writes what a person wants the event to be.
func (c dlqEditCommand) change(ctx context.Context, a *cli.App, st *store.Store,
	d *store.DeadLetterWhole) (request int64, changed bool, err error) {
	was := edit.Letter{Payload: d.Payload, Headers: d.Headers}
	var now edit.Letter
	var dir string
	switch {
	case c.PayloadFile != "" || c.HeadersFile != "" || c.Tombstone:
		now, err = edit.FromFiles(was, cli.Path(c.PayloadFile), cli.Path(c.HeadersFile))
		if c.Tombstone {
			now.Payload = nil
		}
	default:
		now, dir, err = c.inEditor(ctx, a, st, was)
	}
	if err == nil && !now.Same(was) {
		changed = true
		request, err = st.EditDead(ctx, store.Edit{ID: c.ID, Payload: now.Payload, Headers: now.Headers, Seen: len(d.Edits),
			Who: c.Name(), Note: c.Note, Replay: !c.NoReplay})
	}
	if err != nil && changed && dir != "" {
		return 0, true, fmt.Errorf("%w; what you wrote is in %s", err, dir)
	}
	if dir != "" {
		_ = os.RemoveAll(dir) // the system clears its folder for such files
	}
	return request, changed, err
}

func (c dlqEditCommand) inEditor(ctx context.Context, a *cli.App, st *store.Store,
	was edit.Letter) (edit.Letter, string, error) {
	if !cli.CanAsk() {
		return was, "", cli.Usage(errors.New("no terminal for an editor: give --payload-file, --headers-file or " +
			"--tombstone"))
	}
	if !utf8.Valid(was.Payload) {
		return was, "", cli.Usage(errors.New("the payload is not text: give --payload-file"))
	}
	table, err := st.Outbox(ctx)
	if err != nil {
		return was, "", err
	}
	command := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	return edit.Editor{Command: command, In: os.Stdin, Out: os.Stderr, Indent: table.PayloadType == "jsonb"}.Edit(ctx, was)
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
	list := ask.List[store.DeadLetter]{None: "no dead letters", Columns: columns, Read: read, Line: line}
	return list.Print(a, c.Choose, c.Page)
}

func dlqShow() *cobra.Command {
	var id string
	cmd := cli.Command("show", "Show one dead letter with its payload.", `Example:

  cdc-relay dlq show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01`, func(a *cli.App) error { return showDead(a, id) })
	cli.Argument(cmd, "id", "Id of the event.", &id)
	return cmd
}

func showDead(a *cli.App, id string) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, _, err := ask.OpenTables(ctx, a)
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
