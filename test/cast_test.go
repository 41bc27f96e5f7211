package test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var cast = flag.String("cast", "", "where the recording of make demo goes, without its ending; empty: none is made")

const (
	castFile    = "../docs/images/demo"
	castColumns = 126
	castRows    = 14
	castIdle    = 1.5 // seconds: a longer pause is shortened to this, as asciinema's idle_time_limit does
	castEnd     = 5.0 // seconds that the last screen stays
)

// frame is a screen, and the second from which on it shows.
type frame struct {
	at    float64
	lines []string
}

// castLine is one line of an asciicast, version 2, below its head.
type castLine struct {
	at   float64
	text string
}

// MarshalJSON gives [time, "o", text].
func (e castLine) MarshalJSON() ([]byte, error) { return json.Marshal([]any{e.at, "o", e.text}) }

// This is how make cast records the demo, on a terminal of util-linux's script: the command is typed by nobody, what
// it prints and when is as it was. Breaks it catches: a demo that ends with anything but its verdict. Seen to fail with
// a demo that ends at once.
func TestCastOfTheDemo(t *testing.T) {
	if *cast == "" {
		t.Skip("made by make cast; what is in the docs has a test of its own")
	}
	dir := t.TempDir()
	out, timing := filepath.Join(dir, "out"), filepath.Join(dir, "timing")
	command := fmt.Sprintf("stty cols %d rows %d; make -s -C .. demo ARGS='--duration 15s'", castColumns, castRows)
	script := exec.CommandContext(t.Context(), "script", "--quiet", "--return", "--command", command, "--log-out", out,
		"--log-timing", timing, "--logging-format", "classic")
	script.Env = append(os.Environ(), "MAKEFLAGS=")
	if said, err := script.CombinedOutput(); err != nil {
		t.Fatalf("record the demo: %v: %s", err, said)
	}
	events := recorded(t, out, timing)
	head, err := json.Marshal(map[string]any{"version": 2, "width": castColumns, "height": castRows,
		"title": "make demo"})
	if err != nil {
		t.Fatal(err)
	}
	text := append(head, '\n')
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	picture := animated(frames(t, events))
	if !strings.Contains(picture, "missing 0, duplicated 0, out of order 0") {
		t.Fatalf("the demo did not end with its verdict:\n%s", text)
	}
	for path, content := range map[string][]byte{*cast + ".cast": text, *cast + ".svg": []byte(picture)} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// recorded is what script has noted: pauses and numbers of bytes, and the bytes between its own two lines.
func recorded(t *testing.T, out, timing string) []castLine {
	t.Helper()
	output, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	times, err := os.ReadFile(timing)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(output, []byte("\n")) // "Script started on …"
	events, now := []castLine{{0, "$ make demo\r\n"}}, 0.8
	var chunk []byte
	for line := range strings.Lines(string(times)) {
		var pause float64
		var n int
		if _, err := fmt.Sscan(line, &pause, &n); err != nil || n > len(rest) {
			t.Fatalf("timing %q beside %d bytes: %v", line, len(rest), err)
		}
		now += min(pause, castIdle)
		chunk, rest = append(chunk, rest[:n]...), rest[n:]
		if utf8.Valid(chunk) { // else a character goes on in the next one
			events, chunk = append(events, castLine{math.Round(now*1000) / 1000, string(chunk)}), nil
		}
	}
	return events
}

// frames plays the recording on a screen that knows what the demo uses: a new line, a return, and the end of a line
// erased.
func frames(t *testing.T, events []castLine) (list []frame) {
	t.Helper()
	screen, column := []string{""}, 0
	for _, e := range events {
		for text := e.text; text != ""; {
			last := &screen[len(screen)-1]
			r := []rune(text)[0]
			switch {
			case strings.HasPrefix(text, "\x1b[K"):
				*last = string([]rune(*last)[:min(column, len([]rune(*last)))])
				text = text[len("\x1b[K"):]
				continue
			case r == '\n':
				screen = append(screen, "")
			case r == '\r':
				column = 0
			case r < ' ':
				t.Fatalf("the recording has %q, which this screen does not know", text[:min(len(text), 10)])
			default:
				if column == castColumns { // the terminal goes on in the next line
					screen, column = append(screen, ""), 0
					last = &screen[len(screen)-1]
				}
				runes := []rune(*last)
				*last = string(append(runes[:min(column, len(runes))], append([]rune{r}, runes[min(column+1, len(runes)):]...)...))
				column++
			}
			text = text[len(string(r)):]
		}
		shown := slices.Clone(screen[max(0, len(screen)-castRows):])
		if len(list) == 0 || !slices.Equal(list[len(list)-1].lines, shown) {
			list = append(list, frame{e.at, shown})
		}
	}
	return list
}

// animated is the frames one after the other, again and again. The last one is what a reader sees that plays nothing.
func animated(list []frame) string {
	const wide, high, pad = 8.0, 19.0, 16.0
	length := list[len(list)-1].at + castEnd
	w, h := castColumns*wide+2*pad, castRows*high+2*pad
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" `+
		`font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13.3" fill="#d8dee9">`+
		"\n<title>make demo: events are written, relayed and read back; none is missing, doubled or out of order</title>\n"+
		`<rect width="%g" height="%g" rx="8" fill="#161b22"/>`+"\n", w, h, w, h, w, h)
	for i, f := range list {
		from, to := f.at/length, 1.0
		visibility := "hidden"
		if i+1 < len(list) {
			to = list[i+1].at / length
		} else {
			visibility = "visible"
		}
		fmt.Fprintf(&b, `<g visibility="%s"><animate attributeName="visibility" values="hidden;visible;hidden" `+
			`keyTimes="0;%.4f;%.4f" dur="%.1fs" calcMode="discrete" repeatCount="indefinite"/>`, visibility, from, to, length)
		for row, line := range f.lines {
			if line = strings.TrimRight(line, " "); line != "" {
				fmt.Fprintf(&b, `<text x="%g" y="%g" textLength="%g" xml:space="preserve">%s</text>`, pad,
					pad+14+float64(row)*high, wide*float64(len([]rune(line))), html.EscapeString(line))
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// ofAMachine are paths and names that only the machine has on which something was made.
var ofAMachine = regexp.MustCompile(`/(tmp|root|home|work|usr|var|Users)/|\buser@|make\[`)

// The recording in the docs. Breaks it catches: a path or the name of a machine in it, a picture that a browser does
// not read, one that weighs too much for a page, one of another demo than the recording's. Seen to fail with a path
// written into it, with a tag left open, and with a recording that ends before the verdict.
func TestCastInTheDocsIsWholeAndNamesNoMachine(t *testing.T) {
	picture, err := os.ReadFile(castFile + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	recording, err := os.ReadFile(castFile + ".cast")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"svg": string(picture), "cast": string(recording)} {
		host, _ := os.Hostname()
		if found := ofAMachine.FindString(text); found != "" || len(host) > 3 && strings.Contains(text, host) {
			t.Errorf("demo.%s names the machine that made it: %q or %q", name, found, host)
		}
		if len(text) > 500_000 {
			t.Errorf("demo.%s: got %d bytes, want at most 500,000", name, len(text))
		}
	}
	if err := xml.Unmarshal(picture, new(struct{ XMLName xml.Name })); err != nil {
		t.Errorf("demo.svg is no XML: %v", err)
	}
	var events []castLine
	for line := range strings.Lines(string(recording)) {
		var parts []any
		if json.Unmarshal([]byte(line), &parts) == nil && len(parts) == 3 {
			at, _ := strconv.ParseFloat(fmt.Sprint(parts[0]), 64)
			events = append(events, castLine{at, fmt.Sprint(parts[2])})
		}
	}
	list := frames(t, events)
	if again := animated(list); again != string(picture) {
		t.Error("demo.svg is not what demo.cast gives: make cast makes both")
	}
	if last := strings.Join(list[len(list)-1].lines, "\n"); !strings.Contains(last, "missing 0, duplicated 0") {
		t.Errorf("the last screen has no verdict:\n%s", last)
	}
}
