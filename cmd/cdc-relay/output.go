package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/mattn/go-isatty"
)

// output is standard output. It remembers that it could not take something: a command whose output is cut must not end well.
type output struct {
	io.Writer
	failed atomic.Pointer[error] // the first of Write
}

// Write writes and remembers an error.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// ended is what came of a command, with what its output could not take.
func (o *output) ended(err error) error {
	if cut := o.failed.Load(); err == nil && cut != nil {
		return fmt.Errorf("write the output: %w", *cut)
	}
	return err
}

// beneath is the file that the output goes to.
func beneath(w io.Writer) io.Writer {
	if o, is := w.(*output); is {
		return o.Writer
	}
	return w
}

// printJSON writes one indented JSON value to standard output.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// The ANSI colours of the output.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
)

// paint colours a text for people: only on a terminal, and not where NO_COLOR is set (https://no-color.org) or the
// terminal is dumb.
func (a *app) paint(colour, text string) string {
	if !a.coloured(a.out) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (a *app) coloured(w io.Writer) bool {
	return isTerminal(w) && a.variable("NO_COLOR") == "" && a.variable("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := beneath(w).(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

func (a *app) variable(name string) string {
	for _, pair := range a.environ {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}

// plain makes a text of events, brokers or people harmless for a terminal: no control characters, on one line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) { // escape sequences, and marks that turn the direction of a line
			return '\ufffd'
		}
		return r
	}, text)
}

// noteOf is a note as the end of a sentence.
func noteOf(note string) string {
	if note == "" {
		return ""
	}
	return ": " + plain(note)
}
