// Package slot is the command slot: it shows, drops and advances the replication slot.
//
// Tested by the command slot, on a real Postgres (cmd/cdc-relay).
package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Command returns slot and its subcommands.
func Command() *cobra.Command {
	return cli.Group("slot", "Show, drop or advance the replication slot.",
		`Example:

  cdc-relay slot status --config relay.yaml`,
		statusCommand(),
		dropCommand(),
		new(advanceCommand).command(),
	)
}

const patience = 30 * time.Second // for each thing that the server is asked

// work loads the configuration, reads the slot and hands it over.
func work(a *cli.App, do func(ctx context.Context, cfg config.Config, slot store.SlotStatus) error) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	looking, cancel := context.WithTimeout(ctx, patience) // people may think about the answer for longer
	slot, err := st.Slot(looking)
	cancel()
	if err != nil {
		return err
	}
	return do(ctx, cfg, slot)
}

func statusCommand() *cobra.Command {
	return cli.Command("status", "Show the replication slot.",
		`Exit code 1 if there is no such slot, it is lost, or it belongs to another database or program.

Example:

  cdc-relay slot status --config relay.yaml`, showStatus)
}

// showStatus shows the slot.
func showStatus(a *cli.App) error {
	return work(a, func(_ context.Context, cfg config.Config, s store.SlotStatus) error {
		r := show.SlotOf(cfg.Postgres.Slot, s)
		if !a.JSON {
			r.Print(a)
		} else if err := a.PrintJSON(r); err != nil {
			return err
		}
		if !s.Exists || s.WALStatus == "lost" || s.Mismatch() != "" {
			return cli.ErrFailed
		}
		return nil
	})
}

// mayChange refuses what the server would refuse, with what to do, and a slot that cannot be this relay's: the server
// drops any by its name.
func mayChange(ctx context.Context, cfg config.Config, s store.SlotStatus) error {
	name := cfg.Postgres.Slot
	switch {
	case !s.Exists:
		return fmt.Errorf("no slot %q on this server", name)
	case s.Mismatch() != "":
		return fmt.Errorf("the slot %q cannot be this relay's: %s; %s", name, s.Mismatch(), store.OtherSlotName)
	case s.Active:
		return fmt.Errorf("the slot %q is held by backend %d: stop every relay that uses it first", name, s.ActivePID)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	system, err := replication.Identify(ctx, relay.ReplicationConfig(cfg))
	if err != nil {
		return err
	}
	if system.Database != s.Database {
		return fmt.Errorf("the slot %q belongs to database %q, and postgres.replication_url is for %q: give both URLs of "+
			"one database", name, s.Database, system.Database)
	}
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var shown string
	err = store.ReadOnly(ctx, conn, func(tx store.Tx) error {
		return tx.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&shown)
	})
	if err != nil {
		return fmt.Errorf("ask which server this is: %w", err)
	}
	if shown != system.ID {
		return fmt.Errorf("postgres.url reaches system %s, and postgres.replication_url system %s: the slot that was looked "+
			"at is not the one that would be changed; give both URLs of one server", shown, system.ID)
	}
	return nil
}
