package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/store"
)

// retryCommand is what can be done about parked events.
type retryCommand struct {
	Now retryNowCommand `cmd:"" help:"Try parked events at once."`
}

func (retryCommand) Help() string {
	return "Parked events are tried again at their time; this makes it now.\n\nExample:\n\n  cdc-relay retry now --all"
}

type retryNowCommand struct {
	chooseFlags `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
	allFlag     `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
	askFlags    `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
}

func (retryNowCommand) Help() string {
	return "Makes the heads of the chosen keys' queues due. What waits for its topic or partition is not concerned: that is looked at all the time.\n\nExamples:\n\n  cdc-relay retry now --key order-17\n\n  cdc-relay retry now --all --note \"the consumer's schema is mended\""
}

// Run asks for parked events to be tried.
func (c retryNowCommand) Run(a *app) error {
	filter, err := c.toChange(c.allFlag)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, cfg, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	q := asking{a: a, st: st, slot: cfg.Postgres.Slot, flags: c.askFlags, kind: store.RequestRetry, filter: filter, what: "parked events"}
	if n, err := q.concerned(ctx); err != nil || n == 0 {
		return err
	}
	return q.request(ctx)
}
