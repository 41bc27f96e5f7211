package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// parkedCommand is what can be seen of parked events.
type parkedCommand struct {
	List parkedListCommand `cmd:"" help:"List keys with parked events."`
}

func (parkedCommand) Help() string {
	return `Events that cannot be sent now wait in a table, in order.

Example:

  cdc-relay parked list`
}

type parkedListCommand struct {
	ask.Choose `embed:"" envprefix:"CDC_RELAY_PARKED_LIST_"`
	ask.Page   `embed:"" envprefix:"CDC_RELAY_PARKED_LIST_"`
}

func (parkedListCommand) Help() string {
	return `One line per key, described by the first event that it waits for, then one line per event without a key.

Examples:

  cdc-relay parked list

  cdc-relay parked list --topic outbox.event.order --older-than 15m --json

  cdc-relay parked list --all`
}

// Run prints one page, or all.
func (c parkedListCommand) Run(a *cli.App) error {
	read := func(ctx context.Context, st *store.Store, f store.Filter, after string,
		limit int) (store.Page[store.ParkedKey], error) {
		return st.ParkedKeys(ctx, f, after, limit)
	}
	line := func(w io.Writer, k *store.ParkedKey, now time.Time) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", k.Topic, cli.Text(k.Key), k.Events, cli.Plain(k.ID),
			k.Attempts,
			k.Class, cli.Ago(k.ParkedAt, now), nextOf(k, now), cli.Plain(k.LastError))
	}
	const columns = "TOPIC\tKEY\tEVENTS\tHEAD\tATTEMPTS\tCLASS\tPARKED\tNEXT\tLAST ERROR"
	list := ask.List[store.ParkedKey]{None: "nothing is parked", Columns: columns, Read: read, Line: line}
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
