package main

import (
	"errors"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

type adoptCommand struct {
	From             string
	Restored, DryRun bool
}

func (c *adoptCommand) command() *cobra.Command {
	cmd := cli.Command("adopt", "Carry what a relay has recorded to this server, slot or table.",
		"Carries what a relay has recorded (journal, parked events, dead letters, what people decided) to this "+
			"server, slot and table: after pg_upgrade, after dump and restore, after a switch by logical replication, under a "+
			"new slot name, or for an outbox that was made again with the same events. One transaction; the journal's "+
			"size does not matter. Run it as the owner of the relay's tables, while no relay runs. The next start publishes "+
			"from the table what is not recorded, after it has read the topics back.\n\n"+
			"After the return to a snapshot of the same server nothing has a new name; --restored then has the next start "+
			"read the topics back, so that nothing comes twice that was published since.\n\nExamples:\n\n"+
			"  cdc-relay adopt --config relay.yaml --dry-run\n\n  cdc-relay adopt --config relay.yaml\n\n"+
			"  cdc-relay adopt --config relay.yaml --restored", c.Run)
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.From, Shown: "SLOT"}, "from", "Slot whose records to adopt, if several slots have some.")
	f.BoolVar(&c.Restored, "restored", false, "The database went back to an earlier state: read the topics back.")
	f.BoolVar(&c.DryRun, "dry-run", false, "Print what would be carried over; change nothing.")
	return cmd
}

// Run asks the server who it is, and moves the memory in one transaction.
func (c *adoptCommand) Run(a *cli.App) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := ask.NotOfSeveral(cfg, "what is recorded of several outboxes cannot be carried to another server, slot or "+
		"table yet"); err != nil {
		return err
	}
	system, err := replication.Identify(ctx, relay.ReplicationConfig(cfg))
	if err != nil {
		return err
	}
	if err := relay.NewSetup(cfg, st, zerolog.Nop()).CheckSlot(ctx); err != nil {
		return err // before anything is made
	}
	if !c.DryRun {
		if err := errors.Join(st.Migrate(ctx), st.MakeView(ctx)); err != nil {
			return err
		}
	}
	home := store.Home{From: c.From, SystemID: system.ID, Timeline: system.Timeline, Restored: c.Restored, Dry: c.DryRun}
	moved, err := st.Adopt(ctx, home)
	if err != nil {
		return err
	}
	result := show.Adopted{DryRun: c.DryRun, Restored: c.Restored, AtHome: moved.AtHome, FromSlot: moved.From.Slot,
		FromSystem: moved.From.SystemID,
		FromTable:  moved.From.TableOID, Slot: cfg.Postgres.Slot, System: system.ID, Table: moved.TableOID,
		Parked: moved.Parked, Spooled: moved.Spooled, DeadLetters: moved.DeadLetters, Discarded: moved.Discarded}
	if a.JSON {
		return a.PrintJSON(result)
	}
	result.Print(a)
	return nil
}
