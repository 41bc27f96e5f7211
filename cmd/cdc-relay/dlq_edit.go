package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/edit"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

type dlqEditCommand struct {
	PayloadFile, HeadersFile string
	Tombstone, NoReplay      bool
	dlqEditAll
	ask.Chosen
}

func (c *dlqEditCommand) command() *cobra.Command {
	cmd := cli.Command("edit", "Change what a dead letter sends, and replay it.",
		`Opens payload and headers in $VISUAL or $EDITOR, or takes them from files, and replays the event with them:
under its id, at its place, to its topic and key. Its row in the outbox stays as it is.

What was there before is kept in the relay's tables, with who changed it, when and why; dlq show tells it. The change
and the request for the replay are one transaction.

With --merge-payload, --merge-headers or --tombstone it changes all dead letters that are chosen, in portions of 100,
and asks for confirmation first; without a terminal it needs --yes. A merge sets the members that it names, and removes
those that are null. One that it changes nothing of stays as it is, so a command that was stopped half way is given
again. Exit code 1 if one cannot be changed like this.

Examples:

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --note "amount was negative"

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --payload-file fixed.json --no-replay

  cdc-relay dlq edit --code INVALID_HEADERS --merge-headers '{"tenant": "acme", "attempt": null}' --dry-run

  cdc-relay dlq edit --all --merge-payload '{"currency": "EUR"}' --note "currency was missing"`, c.Run)
	f := cmd.Flags()
	c.Chosen.AddTo(cmd)
	f.StringVar(&c.PayloadFile, "payload-file", "", "The new payload, as bytes.")
	f.StringVar(&c.HeadersFile, "headers-file", "", "The new headers, a JSON object of strings; an "+
		"empty file is none.")
	f.BoolVar(&c.Tombstone, "tombstone", false, "Send no payload: SQL NULL.")
	f.BoolVar(&c.NoReplay, "no-replay", false, "Only change it; replay it later.")
	c.dlqEditAll.addTo(cmd)
	cmd.MarkFlagsMutuallyExclusive("payload-file", "tombstone", "merge-payload")
	cmd.MarkFlagsMutuallyExclusive("headers-file", "merge-headers")
	return cmd
}

// Run changes dead letters, and asks for their replay.
func (c *dlqEditCommand) Run(a *cli.App) error {
	c.Flags.Check(a)
	if c.merges() || !c.ofOne() {
		return c.runAll(a)
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.OpenOne(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := st.DeadLetter(ctx, c.IDs[0])
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
		if d, err = st.DeadLetter(ctx, c.IDs[0]); err != nil {
			return err
		}
		return a.PrintJSON(d)
	case c.NoReplay:
		cli.Fprintf(a.Out, "edit: done; it is not replayed: cdc-relay dlq replay %s%s\n", cli.Plain(c.IDs[0]),
			store.OutboxFlag(c.Of))
		return nil
	case !a.JSON:
		cli.Fprintf(a.Out, "edit: done; what was there before: cdc-relay dlq show %s%s\n", cli.Plain(c.IDs[0]),
			store.OutboxFlag(c.Of))
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
		request, err = st.EditDead(ctx, store.Edit{ID: c.IDs[0], Payload: now.Payload, Headers: now.Headers,
			Seen: len(d.Edits), Who: c.Name(), Note: c.Note, Replay: !c.NoReplay})
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
