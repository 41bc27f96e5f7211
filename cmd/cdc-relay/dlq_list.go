package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/store"
)

type dlqListCommand struct {
	chooseFlags `embed:"" envprefix:"CDC_RELAY_DLQ_LIST_"`
	pageFlags   `embed:"" envprefix:"CDC_RELAY_DLQ_LIST_"`
	State       string `help:"Which: open, replayed, discarded or all." default:"open" env:"CDC_RELAY_DLQ_LIST_STATE"`
}

func (dlqListCommand) Help() string {
	return "Examples:\n\n  cdc-relay dlq list\n\n  cdc-relay dlq list --topic outbox.event.order --class permanent --limit 20\n\n  cdc-relay dlq list --state discarded --newer-than 7d --json\n\n  cdc-relay dlq list --all --state all"
}

// Run prints one page, or all.
func (c dlqListCommand) Run(a *app) error {
	a.oneOf("--state", c.State, store.DeadStates)
	return printPage(a, c.chooseFlags, c.pageFlags, "no dead letters", "ID\tTOPIC\tKEY\tTYPE\tCLASS\tCODE\tDIED\tSTATE",
		func(ctx context.Context, st *store.Store, f store.Filter, after string, limit int) (store.Page[store.DeadLetter], error) {
			return st.DeadLetters(ctx, f, c.State, after, limit)
		},
		func(w io.Writer, d *store.DeadLetter, now time.Time) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", plain(d.ID), d.Topic, text(d.Key), text(d.EventType), d.Class, plain(d.Code), ago(d.DeadAt, now), stateOf(d))
		})
}

// badFilter makes a mistake in what was chosen one of usage.
func badFilter(err error) error {
	if errors.Is(err, store.ErrFilter) || errors.Is(err, store.ErrCursor) {
		return usageError{err}
	}
	return err
}

func stateOf(d *store.DeadLetter) string {
	switch {
	case d.ReplayedAt != nil:
		return "replayed by " + text(d.ResolvedBy)
	case d.DiscardedAt != nil:
		return "discarded by " + text(d.ResolvedBy)
	case d.Replaying:
		return "on its way"
	}
	return "open"
}

type dlqShowCommand struct {
	ID string `arg:"" help:"Id of the event."`
}

func (dlqShowCommand) Help() string {
	return "Example:\n\n  cdc-relay dlq show 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01"
}

// Run prints one dead letter.
func (c dlqShowCommand) Run(a *app) error {
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, _, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := st.DeadLetter(ctx, c.ID)
	if err != nil {
		return badFilter(err)
	}
	if a.cli.JSON {
		return a.printJSON(d)
	}
	line := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(a.out, "%-12s %s\n", name, value)
		}
	}
	line("id", plain(d.ID))
	line("state", stateOf(&d.DeadLetter))
	line("topic", d.Topic)
	if d.Partition != nil {
		line("partition", fmt.Sprint(*d.Partition))
	}
	line("key", text(d.Key))
	line("event type", text(d.EventType))
	line("aggregate", text(d.AggregateType)+" "+text(d.AggregateID))
	line("position", d.Position)
	if d.CreatedAt != nil {
		line("created", d.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	line("died", d.DeadAt.UTC().Format(time.RFC3339)+fmt.Sprintf(", after %d attempts", d.Attempts))
	line("reason", a.paint(red, fmt.Sprintf("%s (%s): %s", plain(d.Code), d.Class, plain(d.LastError))))
	line("note", text(d.Note))
	if d.Headers != nil {
		line("headers", plain(string(d.Headers)))
	}
	switch {
	case d.Payload == nil:
		line("payload", "none: a tombstone")
	case json.Valid(d.Payload), utf8.Valid(d.Payload):
		line("payload", plain(string(d.Payload)))
	default:
		line("payload", fmt.Sprintf("%d bytes that are no text; --json shows them in base64", len(d.Payload)))
	}
	return nil
}
