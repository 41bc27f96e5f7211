package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// parkedCommand groups the commands that list parked events.
func parkedCommand() *cobra.Command {
	return cli.Group("parked", "Parked events: list.",
		`Events that cannot be sent now wait in a table, in order.

Example:

  cdc-relay parked list`,
		new(parkedListCommand).command(),
	)
}

type parkedListCommand struct {
	ask.Choose
	ask.Page
}

func (c *parkedListCommand) command() *cobra.Command {
	return cli.Command("list", "List keys with parked events.",
		`One line per key, described by the first event that it waits for, then one line per event without a key.

Examples:

  cdc-relay parked list

  cdc-relay parked list --topic outbox.event.order --older-than 15m --json

  cdc-relay parked list --all`, c.Run, &c.Choose, &c.Page)
}

// Run prints one page, or all.
func (c *parkedListCommand) Run(a *cli.App) error {
	read := func(ctx context.Context, st *store.Store, f store.Filter, after string,
		limit int) (store.Page[store.ParkedKey], error) {
		return st.ParkedKeys(ctx, f, after, limit)
	}
	line := func(w io.Writer, k *store.ParkedKey, now time.Time) {
		cli.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", k.Topic, cli.Text(k.Key), k.Events, cli.Plain(k.ID),
			k.Attempts,
			k.Class, cli.Ago(k.ParkedAt, now), nextOf(k, now), cli.Plain(k.LastError))
	}
	const columns = "TOPIC\tKEY\tEVENTS\tHEAD\tATTEMPTS\tCLASS\tPARKED\tNEXT\tLAST ERROR"
	list := ask.List[store.ParkedKey]{None: "nothing is parked", Columns: columns, Read: read, Line: line,
		Outbox: func(k *store.ParkedKey) string { return k.Outbox }}
	return list.Print(a, c.Choose, c.Page)
}

// nextOf is when the head of the queue is tried.
func nextOf(k *store.ParkedKey, now time.Time) string {
	switch {
	case k.Waits:
		return "when its topic or partition recovers"
	case k.NextRetryAt == nil || k.NextRetryAt.Before(now):
		return "now"
	}
	return "in " + cli.Ago(now, *k.NextRetryAt)
}

// retryCommand groups the commands that retry parked events.
func retryCommand() *cobra.Command {
	return cli.Group("retry", "Parked events: retry now.",
		`The relay retries each parked event when it is due; this makes events due now.

Example:

  cdc-relay retry now --all`,
		retryNow(),
	)
}

func retryNow() *cobra.Command {
	var c ask.Chosen
	return cli.Command("now", "Retry parked events at once.",
		`Makes the first parked event of each chosen key due now. Events that wait for an unavailable topic or
partition are left alone: the relay checks those all the time.

Examples:

  cdc-relay retry now --key order-17

  cdc-relay retry now --all --note "schema fixed in the consumer"`,
		func(a *cli.App) error { return ask.Change{Kind: store.RequestRetry, What: "parked events"}.Do(a, c) }, &c)
}
