package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

func pauseCommand() *cobra.Command {
	var flags ask.Flags
	return cli.Command("pause", "Stop consuming; keep the replication slot.",
		`The relay stops consuming until cdc-relay resume, also after a restart. It finishes what it has read, keeps
retrying parked events, and keeps its slot, so Postgres keeps WAL in the meantime.

Example:

  cdc-relay pause --note "broker is being upgraded"`,
		func(a *cli.App) error { return ask.Control(a, store.RequestPause, flags) }, &flags)
}

func resumeCommand() *cobra.Command {
	var flags ask.Flags
	return cli.Command("resume", "Resume after a pause.", `Ends a pause.

Example:

  cdc-relay resume`,
		func(a *cli.App) error { return ask.Control(a, store.RequestResume, flags) }, &flags)
}
