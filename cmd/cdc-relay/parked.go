package main

import (
	"context"
	"fmt"
	"io"
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
	return "One line for each key, told by the event at the head of its queue, then one for each event without a key.\n\nExamples:\n\n  cdc-relay parked list\n\n  cdc-relay parked list --topic outbox.event.order --older-than 15m --json\n\n  cdc-relay parked list --all"
}

// Run prints one page, or all.
func (c parkedListCommand) Run(a *app) error {
	return printPage(a, c.chooseFlags, c.pageFlags, "nothing is parked", "TOPIC\tKEY\tEVENTS\tHEAD\tATTEMPTS\tCLASS\tPARKED\tNEXT\tLAST ERROR",
		func(ctx context.Context, st *store.Store, f store.Filter, after string, limit int) (store.Page[store.ParkedKey], error) {
			return st.ParkedKeys(ctx, f, after, limit)
		},
		func(w io.Writer, k *store.ParkedKey, now time.Time) {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", k.Topic, text(k.Key), k.Events, plain(k.ID), k.Attempts, k.Class, ago(k.ParkedAt, now), nextOf(k, now), shortened(plain(k.LastError)))
		})
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
