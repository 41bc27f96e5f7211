package show

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/effects"
)

// Effects prints what a consumer has done with the outbox's events.
func Effects(a *cli.App, v *effects.Verdict) {
	for _, c := range []struct {
		name   string
		n      int
		colour string
		note   string
	}{
		{"published", v.Published, "", ""},
		{"done", v.Done, "", ""},
		{"missing", v.Missing, cli.Red, "the consumer's offset is past them, but they had no effect"},
		{"parked", v.Parked, cli.Yellow, "wait in the inbox: SELECT * FROM inbox_parked"},
		{"dead", v.Dead, cli.Yellow, "have failed permanently: SELECT * FROM inbox_dead"},
		{"discarded", v.Discarded, cli.Faint, "given up by a person"},
		{"waiting", v.Waiting, cli.Faint, "the consumer has not come to them yet"},
		{"forgotten", v.Forgotten, cli.Faint, "so old that the inbox does not keep their ids"},
		{"elsewhere", v.Elsewhere, cli.Faint, "in partitions that the consumer has not read"},
		{"not judged", v.Unplaced, cli.Faint, "unknown to the inbox, and published without a known place"},
		{"not published", v.Held, cli.Faint, "pending, parked or dead at the relay"},
	} {
		text := fmt.Sprintf("%-14s %d", c.name, c.n)
		if c.n > 0 && c.colour != "" {
			text = a.Paint(c.colour, text)
		}
		if c.n > 0 && c.note != "" {
			text += "  " + c.note
		}
		cli.Fprintln(a.Out, text)
	}
	for _, id := range v.IDs {
		cli.Fprintf(a.Out, "  missing: id %q\n", id)
	}
	if len(v.Rewind) > 0 {
		cli.Fprintln(a.Out, "To get the missing ones handled, run this in the inbox's database. The consumer skips what "+
			"it has done:")
	}
	for _, statement := range v.Rewind {
		cli.Fprintln(a.Out, "  "+statement)
	}
}
