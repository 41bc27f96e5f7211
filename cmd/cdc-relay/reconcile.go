package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

type reconcileCommand struct {
	ask.Outbox
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
	f.DurationVar(&c.Wait, "wait", time.Minute, "How long to wait for the relay to pass all rows committed so far.")
	c.Outbox.AddTo(cmd)
	return cmd
}

// Run reconciles once.
func (c *reconcileCommand) Run(a *cli.App) error {
	a.Positive("--wait", c.Wait)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	cfg, err := ask.Load(ctx, a, cli.NeedsBoth)
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	switch {
	case c.DryRun:
		return c.dry(ctx, a, st)
	case c.Of != "":
		return cli.Usage(errors.New("--outbox is for --dry-run: otherwise the tables of all outboxes are looked through"))
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
	st, err := st.Named(ctx, c.Of)
	if err == nil {
		err = st.NeedOne()
	}
	if err != nil {
		return ask.BadFilter(err)
	}
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
	request, report, err := askReconcile(ctx, a, st, c.Wait)
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
	report, err := reconcileHere(ctx, cfg, log, a.Build.Facts().Version, c.Wait)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(report)
	}
	show.Reconcile(a, report)
	return nil
}

// askReconcile asks the running relay to look through the table, and waits as long for it.
func askReconcile(ctx context.Context, a *cli.App, st *store.Store,
	wait time.Duration) (request int64, r relay.ReconcileReport, err error) {
	id, err := st.AddRequest(ctx, store.RequestReconcile, store.Filter{}, cli.UserAtHost(), "")
	if err != nil {
		return 0, r, err
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	done, err := ask.Follow(bounded, a, st, id)
	if bounded.Err() != nil && ctx.Err() == nil {
		return id, r, fmt.Errorf("not done within %v; request %d stays, and the relay continues it: "+
			"give more time with --wait, or see its log", wait, id)
	}
	if err != nil {
		return id, r, err
	}
	return id, relay.ReconcileReport{Unrecorded: int(ask.Total(done)), Missed: int(done.Done),
		Took: done.FinishedAt.Sub(*done.StartedAt)}, nil
}

// reconcileHere relays in this process, with the slot, until the look through the whole table is done.
func reconcileHere(ctx context.Context, cfg config.Config, log zerolog.Logger, version string,
	wait time.Duration) (relay.ReconcileReport, error) {
	cfg.OnHalt = config.OnHaltExit
	r, err := brokers.Relay(cfg, log, os.Stdout, relay.WithLogger(log), relay.WithVersion(version))
	if err != nil {
		return relay.ReconcileReport{}, err
	}
	relaying, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(relaying)
		end()
	}()
	bounded, cancel := context.WithTimeout(relaying, wait)
	defer cancel()
	report, err := r.Reconcile(bounded)
	end()
	if failed := <-ended; failed != nil {
		return report, failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return report, fmt.Errorf("not done within %v: what waits is relayed first (see the log); "+
			"give more time with --wait, or start cdc-relay run, which reconciles by itself", wait)
	}
	return report, err
}
