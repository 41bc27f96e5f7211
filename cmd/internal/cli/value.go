package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Annotations of flags.
const (
	shownAs = "shown"   // what stands for the value in --help
	Offered = "offered" // the values that a shell completes
)

const keyValue = "VALUE" // stands for the value of a configuration key in --help

// TextFlag is the value of a flag that takes a text.
type TextFlag struct {
	Into     *string  // holds the default until the flag is given
	Shown    string   // stands for the value in --help; "": the last word of the flag's name
	OneOf    []string // the only values; nil: any
	Offered  []string // values that a shell completes; the command checks them
	NotEmpty bool     // "" is a mistake, as where a script's variable is not set
}

// Set implements pflag.Value.
func (t *TextFlag) Set(text string) error {
	switch {
	case t.NotEmpty && text == "":
		return errors.New(`found ""; allowed: a text that is not empty, or no flag at all`)
	case t.OneOf != nil && !slices.Contains(t.OneOf, text):
		return fmt.Errorf("found %q; allowed: %s", text, strings.Join(t.OneOf, ", "))
	}
	*t.Into = text
	return nil
}

// String implements pflag.Value.
func (t *TextFlag) String() string { return *t.Into }

// Type implements pflag.Value.
func (t *TextFlag) Type() string { return t.Shown }

// Path returns the absolute form of a path, which may begin with ~/; "-" and "" stay as they are.
func Path(path string) string {
	if path == "" || path == "-" {
		return path
	}
	if rest, is := strings.CutPrefix(path, "~/"); is {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// placeholder returns what stands for a flag's value in --help.
func placeholder(f *pflag.Flag) string {
	word := strings.ToUpper(f.Name[strings.LastIndexByte(f.Name, '-')+1:])
	switch kind := f.Value.Type(); {
	case f.Annotations[shownAs] != nil:
		return f.Annotations[shownAs][0]
	case kind == "int":
		return "N"
	case kind == "intSlice":
		return "N,..."
	case kind == "stringSlice":
		return word + ",..."
	case kind == "duration":
		return "DURATION"
	case kind == "", kind == "string":
		return word
	default:
		return kind
	}
}

// options returns the values that a flag can have; nil if they are not listed.
func options(f *pflag.Flag) []string {
	if t, is := f.Value.(*TextFlag); is {
		return append(slices.Clone(t.OneOf), t.Offered...)
	}
	return f.Annotations[Offered]
}

// inHelp is a flag's value as --help shows it.
type inHelp struct {
	pflag.Value
	shown string
}

// Type implements pflag.Value.
func (v inHelp) Type() string { return v.shown }

// forHelp returns a copy of the flag with its value and default as --help shows them.
func forHelp(f *pflag.Flag) *pflag.Flag {
	shown := *f
	shown.Value = inHelp{f.Value, placeholder(f)}
	shown.DefValue = strings.Trim(f.DefValue, "[]")
	if f.Value.Type() == "duration" { // 2m0s, 336h0m0s
		for _, zero := range []string{"m0s", "h0m"} {
			if rest, is := strings.CutSuffix(shown.DefValue, zero); is {
				shown.DefValue = rest + zero[:1]
			}
		}
	}
	return &shown
}
