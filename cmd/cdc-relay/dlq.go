package main

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// dlqCommand is what can be done about dead letters.
type dlqCommand struct {
	List    dlqListCommand    `cmd:"" help:"List dead letters, newest first."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter with its payload."`
	Replay  dlqReplayCommand  `cmd:"" help:"Publish dead letters after all, in the order of their keys."`
	Discard dlqDiscardCommand `cmd:"" help:"Close dead letters for good."`
}

func (dlqCommand) Help() string {
	return `Events that could not be published are kept as dead letters, with payload and reason.

Examples:

  cdc-relay dlq list --older-than 24h

  cdc-relay dlq replay --all --note "topic is back"`
}

type dlqReplayCommand struct {
	ask.Choose `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
	ask.All    `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
	ask.Flags  `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
}

func (dlqReplayCommand) Help() string {
	return `Each event goes back to its place among the parked events, so the events of a key keep their order, and is
sent with the header x-outbox-replay. Newer events of its key may have been published before it. A running relay does
it at once; otherwise the next one to start does.

Those of a key stay behind one in front of them that dies again: they are not sent, and are open dead letters as before.

The command waits for the outcome, 30s unless --wait says otherwise, and says how many were published, are parked, died
again, or stayed behind, and why. Exit code 1 if one died again. With --no-wait it only queues the request.

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
	ask.Choose `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	ask.All    `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	ask.Flags  `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	Yes        bool `help:"Do not ask for confirmation." env:"CDC_RELAY_DLQ_DISCARD_YES"`
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
