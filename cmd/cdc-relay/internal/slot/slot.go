// Package slot is the command slot: it shows, drops and advances the replication slot.
//
// Tested by the command slot, on a real Postgres (cmd/cdc-relay).
package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/store"
)

// Command is slot and its subcommands.
type Command struct {
	Status  statusCommand  `cmd:"" help:"Show the replication slot."`
	Drop    dropCommand    `cmd:"" help:"Drop the slot. Dangerous."`
	Advance advanceCommand `cmd:"" help:"Advance the slot past WAL that cannot be read. Dangerous."`
}

// Help is shown by --help.
func (Command) Help() string {
	return `Example:

  cdc-relay slot status --config relay.yaml`
}

const patience = 30 * time.Second

// work loads the configuration, reads the slot and hands it over.
func work(a *cli.App, do func(ctx context.Context, cfg config.Config, slot store.SlotStatus) error) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	slot, err := st.Slot(ctx)
	if err != nil {
		return err
	}
	return do(ctx, cfg, slot)
}

type statusCommand struct{}

func (statusCommand) Help() string {
	return `Exit code 1 if there is no such slot, or it is lost.

Example:

  cdc-relay slot status --config relay.yaml`
}

// Run shows the slot.
func (statusCommand) Run(a *cli.App) error {
	return work(a, func(_ context.Context, cfg config.Config, s store.SlotStatus) error {
		r := show.SlotOf(cfg.Postgres.Slot, s)
		if !a.JSON {
			r.Print(a)
		} else if err := a.PrintJSON(r); err != nil {
			return err
		}
		if !s.Exists || s.WALStatus == "lost" {
			return cli.ErrFailed
		}
		return nil
	})
}

// mayChange refuses what the server would refuse, with what to do.
func mayChange(cfg config.Config, s store.SlotStatus) error {
	switch {
	case !s.Exists:
		return fmt.Errorf("there is no slot %q on this server", cfg.Postgres.Slot)
	case s.Active:
		return fmt.Errorf("the slot %q is held by backend %d: stop every relay that uses it first", cfg.Postgres.Slot,
			s.ActivePID)
	}
	return nil
}
