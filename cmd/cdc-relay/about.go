package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
)

func versionCommand() *cobra.Command {
	return cli.Command("version", "Show the version.",
		`Prints version, commit, Go version and the versions of the libraries that speak to Postgres and Kafka.

Example:

  cdc-relay version --json`, showVersion)
}

// showVersion prints the version.
func showVersion(a *cli.App) error {
	facts := a.Build.Facts()
	if a.JSON {
		return a.PrintJSON(facts)
	}
	facts.Print(a.Out, "cdc-relay")
	return nil
}

func completionCommand() *cobra.Command {
	var shell string
	cmd := cli.Command("completion", "Print a completion script for a shell.",
		`Prints a script that completes commands, subcommands and flags.

Examples:

  source <(cdc-relay completion bash)

  cdc-relay completion fish > ~/.config/fish/completions/cdc-relay.fish`,
		func(a *cli.App) error {
			a.PrintCompletion(shell)
			return nil
		})
	cli.Argument(cmd, "shell", "bash, zsh or fish.", &shell)
	cmd.ValidArgs = []string{"bash", "zsh", "fish"}
	return cmd
}

func demoCommand() *cobra.Command {
	var flags demo.Flags
	return cli.Command("demo", "See it work on this machine, without other services.", demo.Help,
		func(a *cli.App) error { // once the command line is known to be right
			if _, err := flags.Load(a); err != nil {
				return err
			}
			return demo.Become(a)
		}, &flags)
}
