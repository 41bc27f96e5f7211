package main

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

type adoptCommand struct {
	From   string `help:"Slot whose memory is meant, where there are several." placeholder:"SLOT" env:"CDC_RELAY_ADOPT_FROM"`
	DryRun bool   `help:"Say what would be carried over and change nothing." env:"CDC_RELAY_ADOPT_DRY_RUN"`
}

func (adoptCommand) Help() string {
	return "Carries what a relay has recorded (journal, parked events, dead letters, what people decided) to this server, " +
		"slot and table: after pg_upgrade, after dump and restore, after a switch by logical replication, under a new slot " +
		"name, or for an outbox that was made again with the same events. One transaction; the journal's size does not " +
		"matter. Run it as the owner of the relay's tables, while no relay runs. The next start publishes from the table " +
		"what is not recorded, after it has read the topics back.\n\nExamples:\n\n" +
		"  cdc-relay adopt --config relay.yaml --dry-run\n\n  cdc-relay adopt --config relay.yaml"
}

// adopted is what was carried over, or would be.
type adopted struct {
	DryRun      bool   `json:"dry_run"`
	AtHome      bool   `json:"at_home"` // there was nothing to do
	FromSlot    string `json:"from_slot"`
	FromSystem  string `json:"from_system_id"`
	FromTable   uint32 `json:"from_table_oid"`
	Slot        string `json:"slot"`
	System      string `json:"system_id"`
	Table       uint32 `json:"table_oid"`
	Parked      int64  `json:"parked"`
	DeadLetters int64  `json:"dead_letters"`
	Discarded   int64  `json:"discarded"`
}

// Run asks the server who it is, and moves the memory in one transaction.
func (c adoptCommand) Run(a *cli.App) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	system, err := replication.Identify(ctx, relay.ReplicationConfig(cfg))
	if err != nil {
		return err
	}
	if !c.DryRun {
		if err := st.Migrate(ctx); err != nil {
			return err
		}
	}
	home := store.Home{From: c.From, SystemID: system.ID, Timeline: system.Timeline, Dry: c.DryRun}
	moved, err := st.Adopt(ctx, home)
	if err != nil {
		return err
	}
	result := adopted{DryRun: c.DryRun, AtHome: moved.AtHome, FromSlot: moved.From.Slot, FromSystem: moved.From.SystemID,
		FromTable: moved.From.TableOID, Slot: cfg.Postgres.Slot, System: system.ID, Table: moved.TableOID,
		Parked: moved.Parked, DeadLetters: moved.DeadLetters, Discarded: moved.Discarded}
	if a.JSON {
		return a.PrintJSON(result)
	}
	result.print(a)
	return nil
}

func (r adopted) print(a *cli.App) {
	if r.AtHome {
		fmt.Fprintf(a.Out, "nothing to adopt: what is recorded belongs to slot %q, this server and this table already\n", r.Slot)
		return
	}
	verb := "adopted"
	if r.DryRun {
		verb = "would adopt"
	}
	fmt.Fprintf(a.Out, "%s what was recorded for this table:\n", verb)
	for _, change := range []struct {
		what     string
		from, to any
	}{{"slot", r.FromSlot, r.Slot}, {"server", r.FromSystem, r.System}, {"table oid", r.FromTable, r.Table}} {
		if change.from == change.to {
			fmt.Fprintf(a.Out, "  %-10s %v, as before\n", change.what, change.to)
		} else {
			fmt.Fprintf(a.Out, "  %-10s %v, was %v\n", change.what, change.to, change.from)
		}
	}
	fmt.Fprintf(a.Out, "  the journal, %d parked events, %d open dead letters, %d discarded ones\n",
		r.Parked, r.DeadLetters, r.Discarded)
	if !r.DryRun {
		fmt.Fprintln(a.Out, "next: cdc-relay run; it reads the topics back, publishes what is not recorded, then streams")
	}
}
