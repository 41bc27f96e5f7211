package main

import "github.com/cdc-relay/cdc-relay/store"

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
	return a.resolve(store.RequestRetry, "parked events", c.chooseFlags, c.allFlag, c.askFlags, nil)
}
