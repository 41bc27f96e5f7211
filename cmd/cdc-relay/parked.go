package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

// parkedCommand is what can be seen of parked events.
type parkedCommand struct {
	List parkedListCommand `cmd:"" help:"List keys with parked events, with their queues."`
}

func (parkedCommand) Help() string {
	return "Events that cannot be sent now wait in a table, in order.\n\nExample:\n\n  cdc-relay parked list"
}

type parkedListCommand struct {
	chooseFlags `embed:"" envprefix:"CDC_RELAY_PARKED_LIST_"`
	pageFlags   `embed:"" envprefix:"CDC_RELAY_PARKED_LIST_"`
}

func (parkedListCommand) Help() string {
	return "One line for each key, told by the event at the head of its queue, then one for each event without a key.\n\nExamples:\n\n  cdc-relay parked list\n\n  cdc-relay parked list --topic outbox.event.order --older-than 15m --json"
}

// Run prints one page.
func (c parkedListCommand) Run(a *app) error {
	filter, err := c.filter()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, _, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	page, err := st.ParkedKeys(ctx, filter, c.After, c.Limit)
	if err != nil {
		return badFilter(err)
	}
	if a.cli.JSON {
		return a.printJSON(page)
	}
	if len(page.Items) == 0 {
		fmt.Fprintln(a.out, "nothing is parked")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tKEY\tEVENTS\tHEAD\tATTEMPTS\tCLASS\tPARKED\tNEXT\tLAST ERROR")
	now := time.Now()
	for i := range page.Items {
		k := &page.Items[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", k.Topic, text(k.Key), k.Events, plain(k.ID), k.Attempts, k.Class, ago(k.ParkedAt, now), nextOf(k, now), shortened(plain(k.LastError)))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	if page.Next != "" {
		fmt.Fprintf(a.out, "more: --after %s\n", page.Next)
	}
	return nil
}

// nextOf is when the head of the queue is tried.
func nextOf(k *store.ParkedKey, now time.Time) string {
	switch {
	case k.Waits:
		return "when its topic or partition is well"
	case k.NextRetryAt == nil || k.NextRetryAt.Before(now):
		return "now"
	}
	return "in " + ago(now, *k.NextRetryAt)
}

const errorWidth = 100

func shortened(text string) string {
	if runes := []rune(text); len(runes) > errorWidth {
		return string(runes[:errorWidth-1]) + "…"
	}
	return text
}
