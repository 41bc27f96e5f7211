package main

import (
	"context"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

type dlqListCommand struct {
	ask.Choose `embed:""`
	ask.Page   `embed:""`
	State      string `help:"Which: open, replayed, discarded or all." default:"open" values:"open,replayed,discarded,all"`
}

func (dlqListCommand) Help() string {
	return `Examples:

  cdc-relay dlq list

  cdc-relay dlq list --topic outbox.event.order --class permanent --limit 20

  cdc-relay dlq list --state discarded --newer-than 7d --json

  cdc-relay dlq list --all --state all`
}

// Run prints one page, or all.
func (c dlqListCommand) Run(a *cli.App) error {
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

type dlqShowCommand struct {
	ID string `arg:"" help:"Id of the event."`
}

func (dlqShowCommand) Help() string {
	return `Example:

  cdc-relay dlq show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01`
}

// Run prints one dead letter.
func (c dlqShowCommand) Run(a *cli.App) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, _, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := st.DeadLetter(ctx, c.ID)
	if err != nil {
		return ask.BadFilter(err)
	}
	if a.JSON {
		return a.PrintJSON(d)
	}
	show.DeadLetter(a, d)
	return nil
}
