package main

import (
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
)

type demoCommand struct{ demo.Flags }

// Run has cdc-relay-demo show it, once the command line is known to be right.
func (c demoCommand) Run(a *cli.App) error {
	if _, err := c.Load(a); err != nil {
		return err
	}
	return demo.Become(a)
}
