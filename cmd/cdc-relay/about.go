package main

import (
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
)

type versionCommand struct{}

func (versionCommand) Help() string {
	return `Prints version, commit, Go version and the versions of the libraries that speak to Postgres and Kafka.

Example:

  cdc-relay version --json`
}

// Run prints the version.
func (versionCommand) Run(a *cli.App) error {
	facts := a.Build.Facts()
	if a.JSON {
		return a.PrintJSON(facts)
	}
	facts.Print(a.Out, "cdc-relay")
	return nil
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Prints a script that completes commands, subcommands and flags.

Examples:

  source <(cdc-relay completion bash)

  cdc-relay completion fish > ~/.config/fish/completions/cdc-relay.fish`
}

// Run prints the script.
func (c completionCommand) Run(a *cli.App) error {
	a.PrintCompletion(c.Shell)
	return nil
}

type demoCommand struct{ demo.Flags }

// Run has cdc-relay-demo show it, once the command line is known to be right.
func (c demoCommand) Run(a *cli.App) error {
	if _, err := c.Load(a); err != nil {
		return err
	}
	return demo.Become(a)
}
