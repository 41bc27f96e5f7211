// Package demo is shared by cdc-relay and cdc-relay-demo: the flags of the demo, where cdc-relay finds the other
// program, and how it borrows the throw-away servers. The servers themselves stand in cdc-relay-demo alone, so that
// cdc-relay links none of them.
//
// Tested by demos that are run, by both names (cmd/cdc-relay, cmd/cdc-relay-demo).
package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
)

// Program is the name of the program that has the servers.
const Program = "cdc-relay-demo"

// NATS is the broker of the demo that is no stand-in.
const NATS = "nats"

// Flags are those of the demo.
type Flags struct {
	Broker           string
	Rate, Aggregates int
	Duration         time.Duration
	Break            bool
	Pause            time.Duration // how long each thing stays broken
}

// AddTo implements cli.FlagSet.
func (own *Flags) AddTo(cmd *cobra.Command) {
	f := cmd.Flags()
	own.Broker = "kafka"
	f.Var(&cli.TextFlag{Into: &own.Broker, OneOf: []string{"kafka", "nats"}}, "broker", "Broker to send to: "+
		"kafka, a stand-in, or nats, a real server in the process.")
	f.IntVar(&own.Rate, "rate", 200, "Events per second that the writer commits.")
	f.IntVar(&own.Aggregates, "aggregates", 50, "Aggregates that they belong to; order is kept within each.")
	f.DurationVar(&own.Duration, "duration", 0, "Stop after this time; 0: on Ctrl-C.")
	f.BoolVar(&own.Break, "break", false, "Break things under load, one after another, then stop: the broker, an event, "+
		"a topic, the relay, the slot.")
	f.DurationVar(&own.Pause, "pause", 5*time.Second, "How long each thing that is broken stays so.")
}

// Help is the long help of the demo in both programs.
const Help = `Starts a real Postgres (the installed one, or one that is downloaded once), a stand-in for Kafka or
a real NATS server, a writer, the relay and a consumer, and shows what flows. Ctrl-C stops all of it and leaves nothing
behind. With the stand-in, "Break it" in the console breaks what --break does, one at a time or all in turn. Exit code 1
if the consumer did not get every event.

Examples:

  cdc-relay demo --rate 500 --duration 10s

  cdc-relay demo --break

  cdc-relay demo --broker nats`

// Load checks the flags and reads the configuration.
func (f Flags) Load(a *cli.App) (config.Config, error) {
	a.AtLeast("--rate", f.Rate, 1)
	a.AtLeast("--aggregates", f.Aggregates, 1)
	a.NotShorter("--duration", f.Duration, 0)
	a.Positive("--pause", f.Pause)
	if f.Break && f.Broker == NATS {
		a.Wrong("--break", "goes with the stand-in for Kafka", "--broker kafka, or leave it out")
	}
	return a.Load(cli.NeedsNothing)
}

// find looks for the program beside this one, then on the PATH.
func find() (path string, err error) {
	var here string
	if here, err = os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(here); err == nil {
			here = real
		}
		beside := filepath.Join(filepath.Dir(here), Program)
		if found, err := exec.LookPath(beside); err == nil {
			return found, nil
		}
	}
	if path, err = exec.LookPath(Program); err == nil {
		return path, nil
	}
	missing := fmt.Errorf("%s is not installed beside this program (%s) or on the PATH. The demo and its servers are a "+
		"program of their own, so that cdc-relay links none of them: make build build-demo builds both into bin, and in a "+
		"clone make demo or go run ./cmd/cdc-relay-demo runs it at once", Program, filepath.Dir(here))
	return "", cli.Usage(missing)
}
