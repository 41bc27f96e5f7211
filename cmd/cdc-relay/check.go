package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
)

func checkCommand() *cobra.Command {
	var timeout time.Duration
	cmd := cli.Command("check", "Check database, brokers and topics; print a fix for each problem.",
		`Checks everything that run needs and changes nothing. One line per check: ok, warn (works, but worth knowing)
or FAIL, with the fix. Exit code 1 if a check FAILs.

Example:

  cdc-relay check --config relay.yaml`,
		func(a *cli.App) error { return checkEverything(a, timeout) })
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "How long all the checks together may take.")
	return cmd
}

// checkEverything checks the database, then the brokers, and prints what it found.
func checkEverything(a *cli.App, timeout time.Duration) error {
	a.Positive("--timeout", timeout)
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cfg, _ = ask.Name(ctx, a.Origin, cfg) // the checks report why the database does not answer
	report := check.Everything(ctx, cfg)
	if !a.JSON {
		show.Report(a, report)
	} else if err := a.PrintJSON(report); err != nil {
		return err
	}
	if !report.OK {
		return cli.ErrFailed
	}
	return nil
}
