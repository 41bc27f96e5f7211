package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
)

type reconcileCommand struct {
	DryRun bool          `help:"Only say what was missed; a running relay goes on beside it." env:"CDC_RELAY_RECONCILE_DRY_RUN"`
	Wait   time.Duration `help:"How long to wait until the relay has come past what is committed." default:"1m" env:"CDC_RELAY_RECONCILE_WAIT"`
}

func (reconcileCommand) Help() string {
	return `Looks at the whole outbox table for rows that were committed and never delivered by the stream. A running relay does that by itself, for recent rows every reconcile.interval and for all once a day, so this is for a table that you do not trust after a repair.

Without --dry-run what was missed is published, marked x-outbox-late: by the relay that runs, which this command asks for it and waits for; or, while none runs, by this command, which takes the slot, relays what waits, and stops. Exit code 1 when --dry-run finds rows that were missed, or cannot prove that there are none.

Examples:

  cdc-relay reconcile --dry-run --config relay.yaml

  cdc-relay reconcile --config relay.yaml --json`
}

// Run reconciles once.
func (c reconcileCommand) Run(a *app) error {
	a.positive("--wait", c.Wait)
	cfg, err := a.load(needsBoth)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
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
		return c.request(ctx, a, st, cfg)
	}
	return c.reconcile(ctx, a, cfg)
}

// request has the relay that runs look at the whole table.
func (c reconcileCommand) request(ctx context.Context, a *app, st *store.Store, cfg config.Config) error {
	id, err := st.AddRequest(ctx, store.RequestReconcile, store.Filter{}, userAtHost(), "")
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	q := asking{a: a, st: st, slot: cfg.Postgres.Slot, kind: store.RequestReconcile, flags: askFlags{Wait: true}}
	r, err := q.follow(bounded, id)
	switch {
	case bounded.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("not done within %v; request %d stays, and the relay goes on with it: give more time with --wait, or see its log", c.Wait, id)
	case err != nil:
		return err
	case r.Error != "":
		return fmt.Errorf("the relay refused request %d: %s", id, plain(r.Error))
	}
	report := relay.ReconcileReport{Unrecorded: int(total(r)), Missed: int(r.Done), Took: r.FinishedAt.Sub(*r.StartedAt)}
	if a.cli.JSON {
		return a.printJSON(report)
	}
	fmt.Fprintf(a.out, "the running relay reconciled (request %d)\nunrecorded  %d rows when they were looked at\nmissed      %d rows were never delivered by the stream, and are published now\n",
		id, report.Unrecorded, report.Missed)
	return nil
}

func (c reconcileCommand) dry(ctx context.Context, a *app, st *store.Store) error {
	report, err := relay.AuditDry(ctx, st, c.Wait)
	if err != nil {
		return err
	}
	if a.cli.JSON {
		err = a.printJSON(report)
	} else {
		a.printDry(report)
	}
	if err == nil && (report.Missed > 0 || !report.Proved) {
		err = silentError{exitFailed}
	}
	return err
}

func (a *app) printDry(r relay.DryReport) {
	fmt.Fprintf(a.out, "unrecorded  %d rows when they were looked at\n", r.Unrecorded)
	switch {
	case r.Proved && r.Missed == 0:
		fmt.Fprintln(a.out, "missed      "+a.paint(green, "none")+": everything that was committed was delivered and is recorded")
	case r.Proved:
		fmt.Fprintln(a.out, "missed      "+a.paint(red, fmt.Sprint(r.Missed))+" rows were never delivered by the stream; the running relay publishes them at its next look")
	case r.Streaming:
		fmt.Fprintln(a.out, "missed      not known: the relay has not recorded in time what was committed (see cdc-relay status); wait longer with --wait")
	default:
		fmt.Fprintln(a.out, "missed      not known: no relay streams, and the slot may still hold these rows; start one, or run without --dry-run")
	}
}

// reconcile relays in this process until the look at the whole table is done.
func (c reconcileCommand) reconcile(ctx context.Context, a *app, cfg config.Config) error {
	cfg.OnHalt = config.OnHaltExit
	driver, err := a.newDriver(cfg)
	if err != nil {
		return err
	}
	r := relay.New(relay.Options{Config: cfg, Driver: driver, Logger: a.logger(cfg), Version: readBuild().Version})
	relaying, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(relaying)
		end()
	}()
	bounded, cancel := context.WithTimeout(relaying, c.Wait)
	defer cancel()
	report, err := r.Reconcile(bounded)
	end()
	if failed := <-ended; failed != nil {
		return failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not done within %v: what waits is relayed first (see the log); give more time with --wait, or start cdc-relay run, which reconciles by itself", c.Wait)
	}
	if err != nil {
		return err
	}
	if a.cli.JSON {
		return a.printJSON(report)
	}
	fmt.Fprintln(a.out, "no relay was running, so this command relayed what waited and reconciled")
	if report.CaughtUp > 0 {
		fmt.Fprintf(a.out, "caught up   %d rows were published from the table first: they are older than the slot, or it had been moved past them\n", report.CaughtUp)
	}
	fmt.Fprintf(a.out, "unrecorded  %d rows when they were looked at after that\nmissed      %d rows were never delivered by the stream, and are published now\n", report.Unrecorded, report.Missed)
	return nil
}
