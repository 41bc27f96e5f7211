package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/plain"
)

// This file is the only way by which commands write for people. Two things keep a text of a row, a broker or a person
// from forging what they read:
//
//   - Fprintf and Fprintln make each argument plain: it cannot leave its line.
//   - App.Out and App.Err, of type shown, pass no control characters except newlines and tabs, whatever their source.
//
// Colours are marks until they reach the terminal: characters of a private plane that this process has drawn by lot, so
// that no text can contain them but by luck.

// Own is a text of the program itself, which may have tabs and more than one line.
type Own string

// Fprintf is fmt.Fprintf with plain arguments.
func Fprintf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, cleaned(args)...) // output remembers the error
}

// Fprintln is fmt.Fprintln with plain arguments.
func Fprintln(w io.Writer, args ...any) {
	_, _ = fmt.Fprintln(w, cleaned(args)...) // output remembers the error
}

func cleaned(args []any) []any {
	safe := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case Own:
			safe[i] = string(v)
		case []byte:
			safe[i] = clean(string(v))
		case error:
			safe[i] = clean(v.Error())
		case fmt.Formatter:
			safe[i] = clean(fmt.Sprintf("%v", v))
		case fmt.Stringer:
			safe[i] = clean(v.String())
		default:
			safe[i] = arg
			switch value := reflect.ValueOf(arg); value.Kind() {
			case reflect.String:
				safe[i] = clean(value.String())
			case reflect.Slice, reflect.Array, reflect.Map, reflect.Struct, reflect.Pointer, reflect.Interface:
				safe[i] = clean(fmt.Sprintf("%v", arg))
			}
		}
	}
	return safe
}

// clean is plain.Text that keeps colours.
func clean(text string) string {
	if !strings.ContainsFunc(text, isMark) {
		return plain.Text(text)
	}
	var b strings.Builder
	for _, r := range text {
		if isMark(r) || !plain.Unsafe(r) {
			b.WriteRune(r)
		} else {
			b.WriteRune(utf8.RuneError)
		}
	}
	return b.String()
}

// The ANSI colours of the output.
const (
	Green  = "32"
	Yellow = "33"
	Red    = "31"
	Faint  = "2"
)

const uncoloured = "0"

// colours lists the escape sequences that the marks stand for, from the first one on.
var (
	colours   = []string{uncoloured, Green, Yellow, Red, Faint}
	firstMark = 0x100000 + rand.Int32N(0xfff0)
)

func isMark(r rune) bool { return r >= firstMark && r < firstMark+rune(len(colours)) }

func mark(colour string) string {
	for i, c := range colours {
		if c == colour {
			return string(firstMark + rune(i))
		}
	}
	return ""
}

// Paint colours a text for people: only on a terminal, and not where NO_COLOR is set (https://no-color.org) or the
// terminal is dumb.
func (a *App) Paint(colour, text string) string {
	if !a.coloured(a.Out) {
		return text
	}
	return mark(colour) + text + mark(uncoloured)
}

// shown is a stream for people.
type shown struct {
	to   io.Writer
	part []byte // of a character whose rest was not written yet
	out  []byte // reused
}

// Write implements io.Writer. It counts what it was given, not what that became.
func (s *shown) Write(p []byte) (int, error) {
	text := append(s.part, p...)
	s.part, s.out = nil, s.out[:0]
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			s.part = text
			break
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		switch {
		case isMark(r):
			s.out = append(append(append(s.out, "\x1b["...), colours[r-firstMark]...), 'm')
		case r != '\n' && r != '\t' && plain.Unsafe(r):
			s.out = utf8.AppendRune(s.out, utf8.RuneError)
		default:
			s.out = utf8.AppendRune(s.out, r)
		}
	}
	if _, err := s.to.Write(s.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Script writes a text that is made for a program or a file, such as SQL or YAML. Only on a terminal controls are
// replaced.
func (a *App) Script(text string) error {
	w := a.Out
	if s, is := w.(*shown); is && !IsTerminal(w) {
		w = s.to
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// Clear clears a terminal.
func (a *App) Clear() { _, _ = io.WriteString(Beneath(a.Out), "\x1b[H\x1b[2J") }

// Overwrite writes a line in the place of the one before, on a terminal.
func Overwrite(w io.Writer, line string) error {
	_, err := fmt.Fprint(Beneath(w), "\r\x1b[K"+plain.Text(line))
	return err
}
