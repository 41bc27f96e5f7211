package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/mattn/go-isatty"
)

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
	f, ok := w.(*os.File)
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
