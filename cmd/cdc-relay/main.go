// Command cdc-relay relays committed rows of a Postgres outbox table to Kafka. One file per command; this one finds the
// command, and turns what came of it into an exit code: 0 done, 1 it ran and failed or halted, 2 wrong usage or
// configuration.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/cdc-relay/cdc-relay/config"
)

// The exit codes. Scripts depend on them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(execute(os.Args[1:], streams{out: os.Stdout, err: os.Stderr, environ: os.Environ()}))
}

// streams is what a command sees of its process.
type streams struct {
	out, err io.Writer
	environ  []string
}

// cli is the whole command line. The fields above the commands are flags that every command takes.
type cli struct {
	Config string   `help:"YAML file with the configuration." placeholder:"FILE" env:"CDC_RELAY_CONFIG"`
	Set    []string `help:"Set any configuration key, again for more. Every key also has a flag: --postgres-slot for postgres.slot." placeholder:"KEY=VALUE" sep:"none" env:"CDC_RELAY_SET"`
	JSON   bool     `name:"json" help:"Output for machines." env:"CDC_RELAY_JSON"`
	kong.Plugins

	Run        runCommand        `cmd:"" help:"Relay until stopped."`
	Init       initCommand       `cmd:"" help:"Create what is missing: tables, view, publication, slot."`
	Check      checkCommand      `cmd:"" help:"Examine database, brokers and topics, and say how to repair what is wrong."`
	Status     statusCommand     `cmd:"" help:"Show the running relay."`
	DLQ        dlqCommand        `cmd:"" name:"dlq" help:"Dead letters: list, show, replay, discard."`
	Parked     parkedCommand     `cmd:"" help:"Parked events: list."`
	Retry      retryCommand      `cmd:"" help:"Parked events: try them now."`
	Pause      pauseCommand      `cmd:"" help:"Take nothing in, and keep the slot."`
	Resume     resumeCommand     `cmd:"" help:"Go on after a pause."`
	Verify     verifyCommand     `cmd:"" help:"Compare the outbox table with the topics."`
	Bench      benchCommand      `cmd:"" help:"Measure throughput, latency and correctness on the configured services."`
	Reconcile  reconcileCommand  `cmd:"" help:"Find, and publish, rows that the stream has missed."`
	Slot       slotCommand       `cmd:"" help:"Show the replication slot, drop it, or move it."`
	Cleanup    cleanupCommand    `cmd:"" help:"Delete what is older than its retention, in small steps."`
	Demo       demoCommand       `cmd:"" help:"See it work on this machine, without other services."`
	Version    versionCommand    `cmd:"" help:"Show the version."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
}

// usageError is a mistake on the command line that kong does not find by itself.
type usageError struct{ error }

// silentError fails a command that has said everything in its output.
type silentError struct{ code int }

func (silentError) Error() string { return "failed" }

// execute runs one command line and returns its exit code.
func execute(args []string, s streams) int {
	var c cli
	// kong ends --help by calling its exit function and goes on when that returns.
	asked, exited := exitDone, false
	parser, keyFlags := commandLine(&c, s, func(code int) { asked, exited = code, true })
	if len(args) == 0 {
		parser.Stdout = s.err
		_, _ = parser.Parse([]string{"--help"})
		return exitUsage
	}
	command, err := parser.Parse(args)
	if exited {
		return asked
	}
	if err != nil {
		fmt.Fprintf(s.err, "cdc-relay: %v\nTry: cdc-relay --help\n", err)
		return exitUsage
	}
	out := &output{Writer: s.out}
	s.out = out
	app := &app{streams: s, cli: &c, keyFlags: keyFlags, ownEnv: ownVariables(parser.Model)}
	return exitCode(out.ended(command.Run(app)), s.err)
}

// commandLine is the parser that fills c.
func commandLine(c *cli, s streams, exit func(int)) (*kong.Kong, keyFlags) {
	flags := newKeyFlags()
	c.Plugins = kong.Plugins{flags.target}
	parser, err := kong.New(c,
		kong.Name("cdc-relay"),
		kong.Description("Relay committed rows of a Postgres outbox table to Kafka, in order and without loss."),
		kong.Writers(s.out, s.err),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
	if err != nil {
		panic(fmt.Sprintf("the command line is built wrongly: %v", err))
	}
	return parser, flags
}

// exitCode says on standard error what went wrong, unless the command did, and returns the code for it.
func exitCode(err error, w io.Writer) int {
	if err == nil {
		return exitDone
	}
	if silent, ok := errors.AsType[silentError](err); ok {
		return silent.code
	}
	fmt.Fprintf(w, "cdc-relay: %v\n", err)
	if _, ok := errors.AsType[config.Problems](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// app is what commands work with.
type app struct {
	streams
	cli      *cli
	keyFlags keyFlags
	ownEnv   []string
	mistakes config.Problems // in the command's own flags and arguments; see wrong
}

// ownVariables lists the environment variables of flags that are not configuration keys.
func ownVariables(m *kong.Application) []string {
	var names []string
	_ = kong.Visit(m, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			names = append(names, flag.Envs...)
		}
		return next(nil)
	})
	return names
}
