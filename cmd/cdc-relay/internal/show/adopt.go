package show

import (
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Adopted describes the adopted records, or those that a dry run would adopt.
type Adopted struct {
	DryRun      bool   `json:"dry_run"`
	Restored    bool   `json:"restored"`
	AtHome      bool   `json:"at_home"` // there was nothing to carry over
	FromSlot    string `json:"from_slot"`
	FromSystem  string `json:"from_system_id"`
	FromTable   uint32 `json:"from_table_oid"`
	Slot        string `json:"slot"`
	System      string `json:"system_id"`
	Table       uint32 `json:"table_oid"`
	Parked      int64  `json:"parked"`
	Spooled     int64  `json:"spooled"`
	DeadLetters int64  `json:"dead_letters"`
	Discarded   int64  `json:"discarded"`
}

// Print says it in words.
func (r Adopted) Print(a *cli.App) {
	switch {
	case r.AtHome && r.Restored && !r.DryRun:
		cli.Fprintln(a.Out, "the next start reads the topics back; nothing had to be carried over")
		return
	case r.AtHome:
		cli.Fprintf(a.Out, "nothing to adopt: what is recorded belongs to slot %q, this server and this table already\n",
			r.Slot)
		return
	}
	verb := "adopted"
	if r.DryRun {
		verb = "would adopt"
	}
	cli.Fprintf(a.Out, "%s what was recorded for this table:\n", verb)
	for _, change := range []struct {
		what     string
		from, to any
	}{{"slot", r.FromSlot, r.Slot}, {"server", r.FromSystem, r.System}, {"table oid", r.FromTable, r.Table}} {
		if change.from == change.to {
			cli.Fprintf(a.Out, "  %-10s %v, as before\n", change.what, change.to)
		} else {
			cli.Fprintf(a.Out, "  %-10s %v, was %v\n", change.what, change.to, change.from)
		}
	}
	cli.Fprintf(a.Out, "  the journal, %d parked events, %d open dead letters, %d discarded ones\n",
		r.Parked, r.DeadLetters, r.Discarded)
	if r.Spooled > 0 {
		cli.Fprintf(a.Out, "  %d spooled events, which the next start sends before it reads the table\n", r.Spooled)
	}
	if !r.DryRun {
		cli.Fprintln(a.Out, "next: cdc-relay run; it reads the topics back, publishes what is not recorded, then streams")
	}
}
