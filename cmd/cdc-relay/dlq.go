package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/edit"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// dlqCommand is what can be done about dead letters.
type dlqCommand struct {
	List    dlqListCommand    `cmd:"" help:"List dead letters, newest first."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter with its payload."`
	Replay  dlqReplayCommand  `cmd:"" help:"Publish dead letters after all, in the order of their keys."`
	Edit    dlqEditCommand    `cmd:"" help:"Change what a dead letter sends, and replay it."`
	Discard dlqDiscardCommand `cmd:"" help:"Close dead letters for good."`
}

func (dlqCommand) Help() string {
	return `Events that could not be published are kept as dead letters, with payload and reason.

Examples:

  cdc-relay dlq list --older-than 24h

  cdc-relay dlq replay --all --note "topic is back"`
}

type dlqReplayCommand struct {
	ask.Choose `embed:""`
	ask.All    `embed:""`
	ask.Flags  `embed:""`
}

func (dlqReplayCommand) Help() string {
	return `Each event goes back to its place among the parked events, so the events of a key keep their order, and is
sent with the header x-outbox-replay. Newer events of its key may have been published before it. A running relay does
it at once; otherwise the next one to start does.

Those of a key stay behind one in front of them that dies again: they are not sent, and are open dead letters as before.

The command waits for the outcome, 30s unless --timeout says otherwise, and says how many were published, are parked,
died again, or stayed behind, and why. Exit code 1 if one died again. With --no-wait it only queues the request.

Examples:

  cdc-relay dlq replay 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01

  cdc-relay dlq replay --topic outbox.event.order --newer-than 2h --note "limit raised"

  cdc-relay dlq replay --all`
}

// Run asks for a replay.
func (c dlqReplayCommand) Run(a *cli.App) error {
	return ask.Change{Kind: store.RequestReplay, What: "dead letters"}.Do(a, c.Choose, c.All, c.Flags)
}

type dlqDiscardCommand struct {
	ask.Choose `embed:""`
	ask.All    `embed:""`
	ask.Flags  `embed:""`
	Yes        bool `help:"Do not ask for confirmation."`
}

func (dlqDiscardCommand) Help() string {
	return `Discarded events are never published. Their rows stay, with who discarded them, when and why. The command asks
for confirmation; without a terminal it needs --yes.

Examples:

  cdc-relay dlq discard --type test --note "test data"

  cdc-relay dlq discard --all --older-than 30d --yes --note "no longer needed"`
}

// Run asks for dead letters to be discarded.
func (c dlqDiscardCommand) Run(a *cli.App) error {
	confirm := func(n int64) error {
		return a.Confirm(c.Yes, "discard", fmt.Sprintf("This discards %d dead letters: they are never published.", n))
	}
	change := ask.Change{Kind: store.RequestDiscard, What: "dead letters", Confirm: confirm}
	return change.Do(a, c.Choose, c.All, c.Flags)
}

type dlqEditCommand struct {
	ID          string `arg:"" help:"Id of the event."`
	PayloadFile string `help:"The new payload, as bytes." placeholder:"FILE" type:"path" xor:"payload"`
	HeadersFile string `help:"The new headers, a JSON object of strings; an empty file is none." placeholder:"FILE" type:"path"`
	Tombstone   bool   `help:"Send no payload: SQL NULL." xor:"payload"`
	NoReplay    bool   `help:"Only change it; replay it later."`
	ask.Flags   `embed:""`
}

func (dlqEditCommand) Help() string {
	return `Opens payload and headers in $VISUAL or $EDITOR, or takes them from files, and replays the event with them:
under its id, at its place, to its topic and key. Its row in the outbox stays as it is.

What was there before is kept in the relay's tables, with who changed it, when and why; dlq show tells it. The change
and the request for the replay are one transaction.

Examples:

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --note "amount was negative"

  cdc-relay dlq edit 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01 --payload-file fixed.json --no-replay`
}

// Run changes one dead letter, and asks for its replay.
func (c dlqEditCommand) Run(a *cli.App) error {
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
		now, err = edit.FromFiles(was, c.PayloadFile, c.HeadersFile)
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
		return was, "", cli.Usage(errors.New("there is no terminal for an editor: give --payload-file, --headers-file or " +
			"--tombstone"))
	}
	if !utf8.Valid(was.Payload) {
		return was, "", cli.Usage(errors.New("the payload is no text: give --payload-file"))
	}
	table, err := st.Outbox(ctx)
	if err != nil {
		return was, "", err
	}
	command := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	return edit.Editor{Command: command, In: os.Stdin, Out: os.Stderr, Indent: table.PayloadType == "jsonb"}.Edit(ctx, was)
}
