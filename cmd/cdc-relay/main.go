// Command cdc-relay relays committed rows of a Postgres outbox table to Kafka. One file per command: it parses, calls
// and prints; what a command does stands in the package that it calls.
//
// Commands are tested as they are run, by their output and exit codes, on real servers and stand-ins.
package main

import (
	_ "time/tzdata" // outbox.time_zone, where the system has no zones

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/configure"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/slot"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Set at release: -ldflags "-X main.version=v1.2.3 -X main.commit=abc1234".
var (
	version = ""
	commit  = ""
)

func main() { program().Main() }

func program() cli.Program {
	return cli.Program{
		Name:        "cdc-relay",
		Description: "Relay committed rows of a Postgres outbox table to Kafka, in order and without loss.",
		Commands: []*cobra.Command{
			runCommand(),
			new(initCommand).command(),
			checkCommand(),
			new(statusCommand).command(),
			new(findCommand).command(),
			dlqCommand(),
			parkedCommand(),
			retryCommand(),
			inboxCommand(),
			alarmsCommand(),
			pauseCommand(),
			resumeCommand(),
			new(verifyCommand).command(),
			new(benchCommand).command(),
			new(reconcileCommand).command(),
			slot.Command(),
			new(cleanupCommand).command(),
			new(adoptCommand).command(),
			configure.Command(),
			demoCommand(),
			versionCommand(),
			completionCommand(),
		},
		Build: cli.Build{Version: version, Commit: commit},
	}
}
