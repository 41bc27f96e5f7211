package main

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/check"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

type checkCommand struct {
	Timeout time.Duration `help:"How long all the checks together may take." default:"30s"`
}

func (checkCommand) Help() string {
	return `Checks everything that run needs and changes nothing. One line per check: ok, warn (works, but worth knowing)
or FAIL, with the fix. Exit code 1 if a check FAILs.

Example:

  cdc-relay check --config relay.yaml`
}

// Run checks the database, then the brokers, and prints what it found.
func (c checkCommand) Run(a *cli.App) error {
	a.Positive("--timeout", c.Timeout)
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
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
