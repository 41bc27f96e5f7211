package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/goccy/go-yaml"
	"github.com/mattn/go-isatty"
)

// output is standard output. It remembers that it could not take something: a command whose output is cut must not end
// well.
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

// ended joins a command's error with the first error of its output.
func (o *output) ended(err error) error {
	if cut := o.failed.Load(); err == nil && cut != nil {
		return fmt.Errorf("write the output: %w", *cut)
	}
	return err
}

// Beneath is the file that the output goes to.
func Beneath(w io.Writer) io.Writer {
	if s, is := w.(*shown); is {
		w = s.to
	}
	if o, is := w.(*output); is {
		return o.Writer
	}
	return w
}

// machine is standard output as programs get it.
func (a *App) machine() io.Writer {
	if s, is := a.Out.(*shown); is {
		return s.to
	}
	return a.Out
}

// PrintJSON writes one indented JSON value to standard output, or the same as YAML.
func (a *App) PrintJSON(v any) error {
	if a.YAML {
		return a.printYAML(v)
	}
	encoder := json.NewEncoder(a.machine())
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// printYAML has the names and the order of the JSON.
func (a *App) printYAML(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		text, err = yaml.JSONToYAML(text)
	}
	if err == nil {
		_, err = a.machine().Write(text)
	}
	if err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func (a *App) coloured(w io.Writer) bool {
	return IsTerminal(w) && a.Variable("NO_COLOR") == "" && a.Variable("TERM") != "dumb"
}

// IsTerminal reports whether what is written there is shown to a person.
func IsTerminal(w io.Writer) bool {
	f, ok := Beneath(w).(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Variable is the value of an environment variable, empty without one.
func (a *App) Variable(name string) string {
	for _, pair := range a.Environ {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}
