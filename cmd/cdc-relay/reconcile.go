package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/reconcile"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

type reconcileCommand struct {
	DryRun bool
	Wait   time.Duration
}

func (c *reconcileCommand) command() *cobra.Command {
	cmd := cli.Command("reconcile", "Find and publish rows that the stream missed.",
		`Looks through the whole outbox table for committed rows that the stream never delivered. A running relay does
that by itself, for recent rows every reconcile.interval and for all rows once a day, so this is for a table that you
do not trust after a repair.

Without --dry-run, missed rows are published, marked x-outbox-late. If a relay is running, it does so at this command's
request; otherwise the command takes the slot, relays what is waiting, and stops. Exit code 1 if --dry-run finds missed
rows, or cannot prove that there are none.

Examples:

  cdc-relay reconcile --dry-run --config relay.yaml

  cdc-relay reconcile --config relay.yaml --json`, c.Run)
	f := cmd.Flags()
	f.BoolVar(&c.DryRun, "dry-run", false, "Only report what was missed; a running relay is not disturbed.")
	f.DurationVar(&c.Wait, "wait", time.Minute, "How long to wait until the relay has passed what is committed.")
	return cmd
}

// Run reconciles once.
func (c *reconcileCommand) Run(a *cli.App) error {
	a.Positive("--wait", c.Wait)
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	if c.DryRun {
		return c.dry(ctx, a, st)
	}
	slot, err := st.Slot(ctx)
	if err != nil {
		return err
	}
	if slot.Active {
		return c.ask(ctx, a, st)
	}
	return c.here(ctx, a, cfg)
}

func (c reconcileCommand) dry(ctx context.Context, a *cli.App, st *store.Store) error {
	report, err := relay.AuditDry(ctx, st, c.Wait)
	if err != nil {
		return err
	}
	if !a.JSON {
		show.DryReconcile(a, report)
	} else if err := a.PrintJSON(report); err != nil {
		return err
	}
	if report.Missed > 0 || !report.Proved {
		return cli.ErrFailed
	}
	return nil
}

func (c reconcileCommand) ask(ctx context.Context, a *cli.App, st *store.Store) error {
	request, report, err := reconcile.Ask(ctx, a, st, c.Wait)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(report)
	}
	show.AskedReconcile(a, request, report)
	return nil
}

func (c reconcileCommand) here(ctx context.Context, a *cli.App, cfg config.Config) error {
	log, _ := a.Logger(cfg)
	report, err := reconcile.Here(ctx, cfg, log, a.Build.Facts().Version, c.Wait)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(report)
	}
	show.Reconcile(a, report)
	return nil
}
