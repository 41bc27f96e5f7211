package show

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
)

// Plan prints what is missing, as SQL, or what was created.
func Plan(a *cli.App, r install.Plan, cfg config.Config) {
	if r.DryRun {
		for _, statement := range r.SQL {
			_ = a.Script(strings.TrimRight(strings.TrimSpace(statement), ";") + ";\n") // the output remembers the error
		}
		if len(r.SQL) == 0 {
			cli.Fprintln(a.Out, "-- nothing is missing")
		}
		proposed(a, "-- ", r, cfg)
		return
	}
	cli.Fprintf(a.Out, "tables       %s\npublication  %s %s\nslot         %s %s\n", r.Tables, cfg.Postgres.Publication,
		r.Publication, cfg.Postgres.Slot, r.Slot)
	if len(r.Roles) > 0 {
		cli.Fprintf(a.Out,
			"roles        %s for postgres.replication_url, %s for postgres.url; set their passwords: ALTER ROLE … PASSWORD\n",
			r.Roles[0], r.Roles[1])
	}
	if r.Emit != "" {
		cli.Fprintf(a.Out, "function     %[1]s created; applications need: GRANT EXECUTE ON FUNCTION %[1]s TO …\n", r.Emit)
	}
	switch {
	case r.OwnOutbox:
	case r.Slot == install.Created:
		cli.Fprintln(a.Out,
			"The slot keeps every event from now on: what another worker still publishes from this table will come twice "+
				"(--no-slot leaves it to the first start).")
	case r.Slot == install.Left:
		cli.Fprintln(a.Out,
			"The slot is left to the first start of run: stop the worker that publishes from this table before that.")
	}
	proposed(a, "", r, cfg)
	cli.Fprintln(a.Out, "Next: cdc-relay check, then cdc-relay run.")
}

// proposed prints lines for the configuration by which the rows of the outbox show what became of their events.
func proposed(a *cli.App, before string, r install.Plan, cfg config.Config) {
	if len(r.Proposed) > 0 {
		cli.Fprintf(a.Out, "%[1]s%[2]s has columns that can show what became of its events. For the relay to write them, "+
			"add\n%[1]sto the configuration what fits, by these names:\n", before, cfg.Outbox.Named())
	}
	for _, line := range install.YAML(r.Proposed) {
		cli.Fprintln(a.Out, before+cli.Plain(line))
	}
}
