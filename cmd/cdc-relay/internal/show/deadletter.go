package show

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// DeadLetter prints one dead letter with its payload.
func DeadLetter(a *cli.App, d *store.DeadLetterWhole) {
	line := func(name, value string) {
		if value != "" && value != "-" {
			cli.Fprintf(a.Out, "%-12s %s\n", name, value)
		}
	}
	line("id", cli.Plain(d.ID))
	line("outbox", cli.Plain(d.Outbox))
	line("state", ask.StateOf(&d.DeadLetter))
	line("topic", d.Topic)
	if d.Partition != nil {
		line("partition", fmt.Sprint(*d.Partition))
	}
	line("key", cli.Text(d.Key))
	line("event type", cli.Text(d.EventType))
	line("aggregate", cli.Text(d.AggregateType)+" "+cli.Text(d.AggregateID))
	line("position", d.Position)
	if d.CreatedAt != nil {
		line("created", d.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	line("died", d.DeadAt.UTC().Format(time.RFC3339)+fmt.Sprintf(", after %d attempts", d.Attempts))
	line("reason", a.Paint(cli.Red, fmt.Sprintf("%s (%s): %s", cli.Plain(d.Code), d.Class, cli.Plain(d.LastError))))
	line("note", cli.Text(d.Note))
	sends(line, d.Payload, d.Headers)
	for _, e := range d.Edits {
		line("edited", fmt.Sprintf("%s by %s%s; before that", e.At.UTC().Format(time.RFC3339), cli.Plain(e.Who),
			cli.Plain(because(e.Note))))
		sends(func(name, value string) { line("  "+name, value) }, e.Payload, e.Headers)
	}
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}

// sends prints what a dead letter sends, or sent before it was edited.
func sends(line func(name, value string), payload, headers []byte) {
	if headers != nil {
		line("headers", cli.Plain(string(headers)))
	}
	switch {
	case payload == nil:
		line("payload", "none: a tombstone")
	case json.Valid(payload), utf8.Valid(payload):
		line("payload", cli.Plain(string(payload)))
	default:
		line("payload", fmt.Sprintf("%d bytes of binary data; --json shows them in base64", len(payload)))
	}
}
