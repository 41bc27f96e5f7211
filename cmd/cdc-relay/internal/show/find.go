package show

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Whereabouts prints where each event is, and what to do.
func Whereabouts(a *cli.App, w ask.Whereabouts) {
	for _, f := range w.Items {
		cli.Fprintf(a.Out, "%s  %s%s\n  %s\n", cli.Plain(f.ID), f.State, kindOf(&f), cli.Plain(f.Says))
		if f.Do != "" {
			cli.Fprintf(a.Out, "  %s\n", cli.Plain(f.Do))
		}
	}
	if w.NotAsked != "" {
		cli.Fprintf(a.Err, "The relay was not asked, so events in flight are shown as waiting: %s\n", w.NotAsked)
	}
}

// kindOf describes the kind of event, as far as it is known.
func kindOf(f *store.Found) string {
	var event, kind, id *string
	switch {
	case f.Row != nil:
		event, kind, id = f.Row.EventType, f.Row.AggregateType, f.Row.AggregateID
	case f.Parked != nil:
		event, kind, id = f.Parked.EventType, f.Parked.AggregateType, f.Parked.AggregateID
	case f.Dead != nil:
		event, kind, id = f.Dead.EventType, f.Dead.AggregateType, f.Dead.AggregateID
	default:
		return ""
	}
	return fmt.Sprintf("  %s of %s/%s", cli.Text(event), cli.Text(kind), cli.Text(id))
}
