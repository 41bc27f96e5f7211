// Command cdc-relay relays committed rows of a Postgres outbox table to Kafka. One file per command: it parses, calls
// and prints; what a command does stands in the package that it calls.
//
// Commands are tested as they are run, by their output and exit codes, on real servers and stand-ins.
package main

import (
	_ "time/tzdata" // outbox.time_zone, where the system has no zones

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/configure"
	_ "github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/early"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/slot"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Set at release: -ldflags "-X main.version=v1.2.3 -X main.commit=abc1234".
var (
	version = ""
	commit  = ""
)

func main() { program().Main() }

// commands is the whole command line.
type commands struct {
	cli.Flags

	Run       runCommand       `cmd:"" help:"Relay until stopped."`
	Init      initCommand      `cmd:"" help:"Create what is missing: tables, view, publication, slot."`
	Check     checkCommand     `cmd:"" help:"Check database, brokers and topics; print a fix for each problem."`
	Status    statusCommand    `cmd:"" help:"Show the running relay."`
	Find      findCommand      `cmd:"" help:"Say where an event is, and what to do about it."`
	DLQ       dlqCommand       `cmd:"" name:"dlq" help:"Dead letters: list, show, replay, edit, discard."`
	Parked    parkedCommand    `cmd:"" help:"Parked events: list."`
	Retry     retryCommand     `cmd:"" help:"Parked events: retry now."`
	Inbox     inboxCommand     `cmd:"" help:"What consumers parked or gave up: list, show, replay, discard."`
	Alarms    alarmsCommand    `cmd:"" help:"What topics lost or moved: list, acknowledge."`
	Pause     pauseCommand     `cmd:"" help:"Stop consuming; keep the replication slot."`
	Resume    resumeCommand    `cmd:"" help:"Resume after a pause."`
	Verify    verifyCommand    `cmd:"" help:"Compare the outbox table with the topics."`
	Bench     benchCommand     `cmd:"" help:"Measure throughput, latency and correctness."`
	Reconcile reconcileCommand `cmd:"" help:"Find and publish rows that the stream missed."`
	Slot      slot.Command     `cmd:"" help:"Show, drop or advance the replication slot."`
	Cleanup   cleanupCommand   `cmd:"" help:"Delete what is older than its retention, in small batches."`
	Adopt     adoptCommand     `cmd:"" help:"Carry what a relay has recorded to this server, slot or table."`
	Others    otherCommands    `embed:""`
}

// otherCommands relay nothing.
type otherCommands struct {
	Config     configure.Command `cmd:"" help:"Write a first file; show what is set, and where; print the JSON Schema."`
	Demo       demoCommand       `cmd:"" help:"See it work on this machine, without other services."`
	Version    versionCommand    `cmd:"" help:"Show the version."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
}

func program() cli.Program {
	var c commands
	return cli.Program{
		Name:        "cdc-relay",
		Description: "Relay committed rows of a Postgres outbox table to Kafka, in order and without loss.",
		Commands:    &c, Flags: &c.Flags,
		Build: cli.Build{Version: version, Commit: commit},
	}
}
