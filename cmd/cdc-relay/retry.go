package main

import (
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// retryCommand is what can be done about parked events.
type retryCommand struct {
	Now retryNowCommand `cmd:"" help:"Retry parked events at once."`
}

func (retryCommand) Help() string {
	return `The relay retries each parked event when it is due; this makes events due now.

Example:

  cdc-relay retry now --all`
}

type retryNowCommand struct {
	ask.Choose `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
	ask.All    `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
	ask.Flags  `embed:"" envprefix:"CDC_RELAY_RETRY_NOW_"`
}

func (retryNowCommand) Help() string {
	return `Makes the first parked event of each chosen key due now. Events that wait for an unavailable topic or
partition are left alone: the relay checks those all the time.

Examples:

  cdc-relay retry now --key order-17

  cdc-relay retry now --all --note "schema fixed in the consumer"`
}

// Run asks the relay to retry parked events.
func (c retryNowCommand) Run(a *cli.App) error {
	return ask.Change{Kind: store.RequestRetry, What: "parked events"}.Do(a, c.Choose, c.All, c.Flags)
}
