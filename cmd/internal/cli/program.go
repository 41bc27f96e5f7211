// Package cli is the frame that the commands stand in: it reads the command line and the configuration, tells every
// mistake at once, prints for people and for machines, and turns the outcome into an exit code. It knows no command and
// connects to nothing.
//
// Tested by the commands that stand in it (cmd/cdc-relay); how a command line is made and read, in line_test.go.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/plain"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
)

// The exit codes. Scripts depend on them.
const (
	ExitDone   = 0
	ExitFailed = 1 // it ran and failed, or halted
	ExitUsage  = 2 // wrong usage or configuration; nothing was connected to
)

// ErrFailed fails a command that has said everything in its output.
var ErrFailed = errors.New("failed")

// UsageError is a mistake on the command line that the parser does not find by itself.
type UsageError struct{ error }

// Usage makes an error one of wrong usage.
func Usage(err error) error { return UsageError{err} }

// Streams are a command's input, output and environment.
type Streams struct {
	Out, Err io.Writer
	Environ  []string
}

// Program is a command line.
type Program struct {
	Name, Description string
	Commands          []*cobra.Command
	Default           *cobra.Command // runs when no command is named; nil: a command must be named
	Build             Build
}

// Main runs the command line of this process and exits with its code.
func (p Program) Main() {
	os.Exit(p.Execute(os.Args[1:], Streams{Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
}

// Execute runs one command line and returns its exit code.
func (p Program) Execute(args []string, s Streams) int {
	s.Err = &shown{to: s.Err}
	a, root := p.start(s)
	if len(args) == 0 && p.Default == nil {
		root.SetOut(s.Err)
		printHelp(root, nil)
		return ExitUsage
	}
	if len(args) > 0 && args[0] == "help" { // of the command that follows
		args = append(slices.Clone(args[1:]), "--help")
	}
	command, err := parse(root, args)
	switch {
	case errors.Is(err, errVersion):
		fmt.Fprintln(s.Out, p.Name, p.Build.Facts().Version)
		return ExitDone
	case err != nil:
		fmt.Fprintf(s.Err, "%s: %s\nTry: %s --help\n", p.Name, indented(err.Error()), command.CommandPath())
		return ExitUsage
	case a.command == nil:
		return ExitDone // with help
	}
	a.Args, a.JSON, a.YAML = args, a.flags.json || a.flags.output != "table", a.flags.output == "yaml"
	if a.flags.quiet && !a.JSON && !streams(a.command) {
		s.Out = io.Discard
	}
	out := &output{Writer: s.Out}
	a.Out = &shown{to: out}
	code, why := p.exitCode(out.ended(a.run(a)))
	a.leave(why)
	return code
}

// start returns the command line and its App.
func (p Program) start(s Streams) (*App, *cobra.Command) {
	a := &App{Streams: s, Build: p.Build}
	environ := map[string]string{}
	for _, pair := range s.Environ {
		name, text, _ := strings.Cut(pair, "=")
		environ[name] = text
	}
	return a, p.root(a, environ)
}

// streams reports whether the command's output is its result, not progress messages.
func streams(c *cobra.Command) bool { return c.Name() == "run" || c.Name() == "completion" }

// Parse reads a command line and runs nothing.
func (p Program) Parse(args []string) error {
	_, root := p.start(Streams{Out: io.Discard, Err: io.Discard})
	_, err := parse(root, args)
	return err
}

// exitCode is the code for what came of a command, and what went wrong in words, unless the command has said it.
func (p Program) exitCode(err error) (code int, why string) {
	if err == nil {
		return ExitDone, ""
	}
	if errors.Is(err, ErrFailed) {
		return ExitFailed, ""
	}
	why = fmt.Sprintf("%s: %s\n", p.Name, indented(err.Error()))
	if refused := login.Of(err); refused != nil {
		why += fmt.Sprintf("To do: %s\n", indented(refused.Remedy))
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return ExitUsage, why
	}
	if _, ok := errors.AsType[UsageError](err); ok {
		return ExitUsage, why
	}
	return ExitFailed, why
}

// indented keeps the lines of a text from being taken for others: they may quote rows and brokers.
func indented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if lines[i] = plain.Text(line); i > 0 && line != "" && !strings.HasPrefix(line, " ") {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// leavePatience is how long the end of a command that logs waits for its last lines to be read.
const leavePatience = time.Second

// leave writes the last words of a command. One that logs does not wait forever for a log that is not read.
func (a *App) leave(why string) {
	if a.log == nil {
		_, _ = io.WriteString(a.Err, why) // where else to report it?
		return
	}
	a.log.Flush(leavePatience)
	if why != "" {
		within(leavePatience, func() { _, _ = io.WriteString(a.Err, why) })
	}
}

// within returns when f has ended, or after the patience; a program that is about to exit leaves f behind.
func within(patience time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// App gives a command its configuration and streams.
type App struct {
	Streams
	JSON  bool // what is printed is for machines
	YAML  bool // as YAML then
	Build Build
	Args  []string // the command line, without the program's name

	log      *logqueue.Writer // of Logger; nil: the command logs nothing
	flags    flags
	command  *cobra.Command // that was named, and what it runs; nil: the command line asked for help
	run      func(*App) error
	beside   error           // of what stood beside --help
	mistakes config.Problems // in the command's own flags and arguments; see Wrong
	loaded   Loaded
}

// Given reports whether a flag of the command stands on the command line.
func (a *App) Given(flag string) bool { return a.command.Flags().Changed(flag) }
