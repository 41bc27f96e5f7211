package show

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// AgoOr is how long ago a time is, "-" without one.
func AgoOr(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return cli.Ago(*at, now)
}

// HeldLine prints an event that a consumer holds back, as a line of a table.
func HeldLine(w io.Writer, e *consumers.Event, now time.Time) {
	cli.Fprintf(w, "%s\t%s\t%s\t%s\t", cli.Plain(e.ID), cli.Plain(e.Topic), cli.Text(e.Key), cli.Text(e.EventType))
	if e.State == consumers.Parked {
		cli.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", e.Events, e.Attempts, cli.Ago(e.At, now), nextOf(e, now),
			cli.Plain(e.LastError))
		return
	}
	cli.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", cli.Plain(e.Class), e.Attempts, cli.Ago(e.At, now), stateOf(e),
		cli.Plain(e.LastError))
}

// nextOf is when a parked event is tried.
func nextOf(e *consumers.Event, now time.Time) string {
	switch {
	case e.Held:
		return "when a person decides"
	case e.NextRetryAt == nil:
		return "behind another of its key"
	case e.NextRetryAt.Before(now):
		return "now"
	}
	return "in " + cli.Ago(now, *e.NextRetryAt)
}

func stateOf(e *consumers.Event) string {
	if e.ResolvedBy == nil {
		return e.State
	}
	return e.State + " by " + cli.Text(e.ResolvedBy)
}

// Held prints one event that a consumer holds back, with its payload.
func Held(a *cli.App, w *consumers.Whole) {
	line := func(name, value string) {
		if value != "" && value != "-" {
			cli.Fprintf(a.Out, "%-12s %s\n", name, value)
		}
	}
	line("id", cli.Plain(w.ID))
	line("state", stateOf(&w.Event))
	line("topic", fmt.Sprintf("%s, partition %d, offset %d", cli.Plain(w.Topic), w.Partition, w.Offset))
	line("key", cli.Text(w.Key))
	line("event type", cli.Text(w.EventType))
	if w.State == consumers.Parked {
		line("parked", w.At.UTC().Format(time.RFC3339)+fmt.Sprintf(", after %d attempts", w.Attempts))
		line("next", nextOf(&w.Event, time.Now()))
		line("events", fmt.Sprintf("%d of its key wait, this one included", w.Events))
	} else {
		line("died", w.At.UTC().Format(time.RFC3339)+fmt.Sprintf(", after %d attempts", w.Attempts))
	}
	line("reason", a.Paint(cli.Red, fmt.Sprintf("%s: %s", cli.Plain(w.Class), cli.Plain(w.LastError))))
	line("note", cli.Text(w.Note))
	headers, err := json.Marshal(w.Headers)
	if err != nil || len(w.Headers) == 0 {
		headers = nil
	}
	sends(line, w.Payload, headers)
}
