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
)

type statusCommand struct {
	Relay   string
	Watch   bool
	Timeout time.Duration
}

func (c *statusCommand) command() *cobra.Command {
	cmd := cli.Command("status", "Show the running relay.",
		`Asks the relay that listens on http.listen of this configuration. Exit code 1 if none answers. A process that runs
the relays of --config-dir lists them, those that need a look first. docs/trouble.md tells degraded, not ready, alarm
and halted apart.

Examples:

  cdc-relay status --http-listen 127.0.0.1:9464 --watch
  cdc-relay status --relay acme`, c.Run)
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.Relay, Shown: "NAME", NotEmpty: true}, "relay",
		"Which relay of a process with --config-dir: its file's name without .yaml.")
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
	body, err := ask.Status(ctx, address, tokenFile, c.Relay)
	if err != nil {
		return err
	}
	var st struct {
		show.Named
		Items *[]show.Named `json:"items"` // of several relays
	}
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("read the status from %s: %w", address, err)
	}
	if st.Relay != c.Relay {
		return fmt.Errorf("what listens on %s runs one relay, which has no name; leave out --relay", address)
	}
	if a.JSON {
		return a.PrintJSON(json.RawMessage(body))
	}
	if c.Watch && cli.IsTerminal(a.Out) {
		a.Clear()
	}
	if st.Items != nil {
		show.Relays(a, *st.Items)
	} else {
		show.Status(a, st.Status, time.Now())
	}
	return nil
}
