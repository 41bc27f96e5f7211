package main

import (
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

type pauseCommand struct {
	ask.Flags `embed:""`
}

func (pauseCommand) Help() string {
	return `The relay stops consuming until cdc-relay resume, also after a restart. It finishes what it has read, keeps
retrying parked events, and keeps its slot, so Postgres keeps WAL in the meantime.

Example:

  cdc-relay pause --note "broker is being upgraded"`
}

// Run asks the relay to stop consuming.
func (c pauseCommand) Run(a *cli.App) error { return ask.Control(a, store.RequestPause, c.Flags) }

type resumeCommand struct {
	ask.Flags `embed:""`
}

func (resumeCommand) Help() string {
	return `Ends a pause.

Example:

  cdc-relay resume`
}

// Run asks the relay to go on.
func (c resumeCommand) Run(a *cli.App) error { return ask.Control(a, store.RequestResume, c.Flags) }
