package main

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/store"
)

// dlqCommand is what can be done about dead letters.
type dlqCommand struct {
	List    dlqListCommand    `cmd:"" help:"List dead letters, the newest first."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter with its payload."`
	Replay  dlqReplayCommand  `cmd:"" help:"Publish dead letters after all, in the order of their keys."`
	Discard dlqDiscardCommand `cmd:"" help:"Close dead letters for good."`
}

func (dlqCommand) Help() string {
	return "Events that were given up are kept with payload and reason.\n\nExamples:\n\n  cdc-relay dlq list --older-than 24h\n\n  cdc-relay dlq replay --all --note \"topic is back\""
}

type dlqReplayCommand struct {
	chooseFlags `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
	allFlag     `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
	askFlags    `embed:"" envprefix:"CDC_RELAY_DLQ_REPLAY_"`
}

func (dlqReplayCommand) Help() string {
	return "Each event goes back among the parked events at its own place, so events of a key keep their order, and is sent with the header x-outbox-replay. Newer events of its key may have been published before it. The relay does it: at once when one runs, else when one starts.\n\nExamples:\n\n  cdc-relay dlq replay 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01\n\n  cdc-relay dlq replay --topic outbox.event.order --newer-than 2h --note \"limit raised\"\n\n  cdc-relay dlq replay --all"
}

// Run asks for a replay.
func (c dlqReplayCommand) Run(a *app) error {
	return a.resolve(store.RequestReplay, "dead letters", c.chooseFlags, c.allFlag, c.askFlags, nil)
}

type dlqDiscardCommand struct {
	chooseFlags `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	allFlag     `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	askFlags    `embed:"" envprefix:"CDC_RELAY_DLQ_DISCARD_"`
	Yes         bool `help:"Do not ask." env:"CDC_RELAY_DLQ_DISCARD_YES"`
}

func (dlqDiscardCommand) Help() string {
	return "They are never published. Their rows stay, with who discarded them, when and why. It asks first; without a terminal it needs --yes.\n\nExamples:\n\n  cdc-relay dlq discard --type test --note \"test data\"\n\n  cdc-relay dlq discard --all --older-than 30d --yes --note \"nobody missed them\""
}

// Run asks for dead letters to be discarded.
func (c dlqDiscardCommand) Run(a *app) error {
	return a.resolve(store.RequestDiscard, "dead letters", c.chooseFlags, c.allFlag, c.askFlags, func(n int64) error {
		return a.confirm(c.Yes, "discard", fmt.Sprintf("This discards %d dead letters: they are never published.", n))
	})
}

// resolve asks for something to be done about what is chosen, dead letters or parked events, once confirm, if there is
// one, agrees to their number.
func (a *app) resolve(kind, what string, choose chooseFlags, all allFlag, flags askFlags, confirm func(int64) error) error {
	filter := choose.toChange(a, all)
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, cfg, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	q := asking{a: a, st: st, slot: cfg.Postgres.Slot, flags: flags, kind: kind, filter: filter, what: what}
	n, err := st.Count(ctx, kind, filter)
	if err != nil {
		return badFilter(err)
	}
	absent, err := q.absent(ctx, n)
	if err != nil {
		return err
	}
	if n == 0 {
		return q.nothing(ctx, absent)
	}
	if confirm != nil {
		if err := confirm(n); err != nil {
			return err
		}
	}
	if err := q.request(ctx); err != nil {
		return err
	}
	return notThere(absent)
}
