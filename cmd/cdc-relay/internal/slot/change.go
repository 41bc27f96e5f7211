package slot

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

func dropCommand() *cobra.Command {
	var yes bool
	cmd := cli.Command("drop", "Drop the slot. Dangerous.",
		`The slot holds the relay's position. Without it, a relay with postgres.on_slot_lost: recover starts again from
the table and publishes every unpublished row; rows deleted before that are lost. Drop the slot when you uninstall
the relay: otherwise the server keeps WAL for it until the disk is full.

Example:

  cdc-relay slot drop --config relay.yaml`,
		func(a *cli.App) error { return drop(a, yes) })
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask for confirmation.")
	return cmd
}

// drop drops the slot.
func drop(a *cli.App, yes bool) error {
	return work(a, func(ctx context.Context, cfg config.Config, s store.SlotStatus) error {
		if err := mayChange(ctx, cfg, s); err != nil {
			return err
		}
		what := fmt.Sprintf("This drops the slot %s of database %s, which stands at %s.", cfg.Postgres.Slot, s.Database,
			s.Confirmed)
		if err := a.Confirm(yes, cfg.Postgres.Slot, what); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := replication.DropSlot(ctx, relay.ReplicationConfig(cfg)); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]string{"slot": cfg.Postgres.Slot, "dropped_at": s.Confirmed.String()})
		}
		cli.Fprintf(a.Out, "dropped the slot %s\n", cfg.Postgres.Slot)
		return nil
	})
}

type advanceCommand struct {
	To  string
	Yes bool
}

func (c *advanceCommand) command() *cobra.Command {
	cmd := cli.Command("advance", "Advance the slot past WAL that cannot be read. Dangerous.",
		`Skips everything in the stream up to the position: the way past WAL that the server or the relay cannot read.
At its next start the relay notices the move and publishes the unpublished rows of the table, marked x-outbox-late;
rows deleted before that are lost.

Example:

  cdc-relay slot advance --to 0/1A2B3C4D --config relay.yaml`, c.Run)
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.To, Shown: "LSN|end"}, "to", "Position to move to, such as 0/1A2B3C4D; end: the "+
		"end of WAL.")
	_ = cmd.MarkFlagRequired("to")
	f.BoolVar(&c.Yes, "yes", false, "Do not ask for confirmation.")
	return cmd
}

// Run moves the slot.
func (c *advanceCommand) Run(a *cli.App) error {
	var position outbox.LSN // 0: the end
	if c.To != "end" {
		var err error
		if position, err = outbox.ParseLSN(c.To); err != nil || position == 0 {
			a.Wrong("--to", fmt.Sprintf("found %q", c.To), "a position such as 0/1A2B3C4D, or end")
		}
	}
	return work(a, func(ctx context.Context, cfg config.Config, s store.SlotStatus) error {
		to := cmp.Or(position, s.WALEnd)
		if err := mayChange(ctx, cfg, s); err != nil {
			return err
		}
		if to <= s.Confirmed || to > s.WALEnd {
			return cli.Usage(fmt.Errorf("--to %s: the slot stands at %s and the WAL ends at %s; want a position between the two",
				to, s.Confirmed, s.WALEnd))
		}
		what := fmt.Sprintf(
			"This moves the slot %s of database %s from %s to %s. What was committed in between does not come by the stream.",
			cfg.Postgres.Slot, s.Database, s.Confirmed, to)
		if err := a.Confirm(c.Yes, cfg.Postgres.Slot, what); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		at, err := replication.AdvanceSlot(ctx, relay.ReplicationConfig(cfg), to)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]string{"slot": cfg.Postgres.Slot, "from": s.Confirmed.String(), "to": at.String()})
		}
		cli.Fprintf(a.Out, "moved the slot %s to %s; the next start publishes from the table what was skipped\n",
			cfg.Postgres.Slot, at)
		return nil
	})
}
