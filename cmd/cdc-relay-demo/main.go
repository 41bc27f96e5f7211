// Command cdc-relay-demo shows a relay at work on this machine, with servers of its own: a real Postgres, and a
// stand-in for Kafka or a real NATS. cdc-relay demo and cdc-relay bench --demo run it; whatever only a demo needs is
// linked here and not there.
//
// Tested by demos that run to their end.
package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Set at release: -ldflags "-X main.version=v1.2.3 -X main.commit=abc1234".
var (
	version = ""
	commit  = ""
)

func main() { program().Main() }

func program() cli.Program {
	demo := new(demoCommand).command()
	return cli.Program{
		Name:        "cdc-relay-demo",
		Description: "See cdc-relay at work on this machine, without other services.",
		Commands:    []*cobra.Command{demo, serveCommand(), sandboxCommand(), relayCommand()},
		Default:     demo,
		Build:       cli.Build{Version: version, Commit: commit},
	}
}
