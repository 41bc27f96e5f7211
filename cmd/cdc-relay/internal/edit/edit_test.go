package edit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Breaks it catches: bytes that change although no one touched them, such as the spaces of a text or a last line's end;
// a change that is lost; headers that are none sent as empty text; files that others may read. Seen to fail with texts
// indented, with the line's end kept, and with empty headers kept.
func TestAnEditorChangesWhatItIsAskedToAndNothingElse(t *testing.T) {
	was := Letter{Payload: []byte(`{"a":1,  "b":2}`), Headers: []byte(`{"h":"v"}`)}
	for name, row := range map[string]struct {
		command string
		indent  bool
		want    Letter
	}{
		"nothing":          {command: "true", want: was},
		"a last line":      {command: `touch; for f in "$@"; do echo >> "$f"; done; true`, want: was},
		"the payload":      {command: `sed -i s/1/7/ "$1"; true`, want: Letter{[]byte(`{"a":7,  "b":2}`), was.Headers}},
		"indented":         {command: "true", indent: true, want: was},
		"the headers":      {command: `sed -i s/v/w/ "$2"; true`, want: Letter{was.Payload, []byte("{\n  \"h\": \"w\"\n}")}},
		"no headers":       {command: `: > "$2"; true`, want: Letter{Payload: was.Payload}},
		"an empty payload": {command: `: > "$1"; true`, want: Letter{[]byte{}, was.Headers}},
	} {
		t.Run(name, func(t *testing.T) {
			command := "f() { " + row.command + "; }; f"
			got, dir, err := Editor{Command: command, Out: os.Stderr, Indent: row.indent}.Edit(t.Context(), was)
			defer func() { _ = os.RemoveAll(dir) }()
			if err != nil || !got.Same(row.want) {
				t.Errorf("got %q %q, %v; want %q %q", got.Payload, got.Headers, err, row.want.Payload, row.want.Headers)
			}
			file, err := os.Stat(filepath.Join(dir, "payload.json"))
			if err != nil || file.Mode().Perm() != 0o600 {
				t.Errorf("the payload's file: got %v, %v; want it for this user only", file.Mode(), err)
			}
		})
	}
	if _, dir, err := (Editor{Command: "exit 3;"}).Edit(t.Context(), was); err == nil ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("an editor that fails: got %v", err)
	} else {
		_ = os.RemoveAll(dir)
	}
}

// Seen to fail with an empty file of headers taken as it is.
func TestFilesReplaceThePartsThatAreNamed(t *testing.T) {
	was := Letter{Payload: []byte("p"), Headers: []byte("{}")}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := FromFiles(was, file("q\n"), ""); err != nil || !got.Same(Letter{[]byte("q\n"), was.Headers}) {
		t.Errorf("a payload: got %q, %v", got, err)
	}
	if got, err := FromFiles(was, "", file(" \n")); err != nil || !got.Same(Letter{Payload: was.Payload}) {
		t.Errorf("empty headers: got %q, %v; want none", got, err)
	}
	if _, err := FromFiles(was, "/no/such/file", ""); err == nil {
		t.Error("no such file: got no error")
	}
}
