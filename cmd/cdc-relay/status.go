package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
)

type statusCommand struct {
	Watch   bool
	Timeout time.Duration
}

func (c *statusCommand) command() *cobra.Command {
	cmd := cli.Command("status", "Show the running relay.",
		`Asks the relay that listens on http.listen of this configuration. Exit code 1 if none answers.

Example:

  cdc-relay status --http-listen 127.0.0.1:9464 --watch`, c.Run)
	f := cmd.Flags()
	f.BoolVar(&c.Watch, "watch", false, "Refresh every second, until Ctrl-C.")
	f.DurationVar(&c.Timeout, "timeout", 5*time.Second, "How long the relay may take to answer.")
	return cmd
}

const watchEvery = time.Second

// Run prints what the running relay says of itself.
func (c *statusCommand) Run(a *cli.App) error {
	a.Positive("--timeout", c.Timeout)
	cfg, err := a.Load(cli.NeedsNothing)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	answered := false
	for {
		err := c.show(ctx, a, ask.Reachable(cfg.HTTP.Listen), cfg.HTTP.TokenFile)
		if c.Watch && ctx.Err() != nil {
			return nil // a question that Ctrl-C cut short is no failure
		}
		if err != nil && c.Watch && answered { // as while it is started again
			cli.Fprintf(a.Err, "%s  %v; looking again\n", time.Now().Format(time.TimeOnly), err)
		} else if err != nil || !c.Watch {
			return err
		}
		answered = true
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// show asks once and prints the answer; on a terminal, watching, in the place of the one before.
func (c statusCommand) show(ctx context.Context, a *cli.App, address, tokenFile string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, err := ask.Status(ctx, address, tokenFile)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(json.RawMessage(body))
	}
	var st relay.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("read the status from %s: %w", address, err)
	}
	if c.Watch && cli.IsTerminal(a.Out) {
		a.Clear()
	}
	show.Status(a, st, time.Now())
	return nil
}
