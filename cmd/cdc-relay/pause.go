package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

func pauseCommand() *cobra.Command {
	var flags ask.Flags
	return cli.Command("pause", "Stop consuming; keep the replication slot.",
		`The relay stops consuming until cdc-relay resume, also after a restart. It finishes what it has read, keeps
retrying parked events, and keeps its slot, so Postgres keeps WAL in the meantime.

Example:

  cdc-relay pause --note "broker is being upgraded"`,
		func(a *cli.App) error { return ask.Control(a, store.RequestPause, store.Filter{}, flags) }, &flags)
}

func resumeCommand() *cobra.Command {
	var flags ask.Flags
	var untilNow bool
	cmd := cli.Command("resume", "Resume after a pause.",
		`Ends a pause, and a halt by dlq.breaker: what waits for it becomes dead letters, and what comes counts again.
With --until-now, rows that are committed already do not count: one resume for a flood of any length.

Examples:

  cdc-relay resume

  cdc-relay resume --until-now --note "producer is fixed"`,
		func(a *cli.App) error {
			return ask.Control(a, store.RequestResume, store.Filter{UntilNow: untilNow}, flags)
		}, &flags)
	cmd.Flags().BoolVar(&untilNow, "until-now", false,
		"Let all events committed until now become dead letters, if they must.")
	return cmd
}
