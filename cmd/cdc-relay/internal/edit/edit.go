// Package edit lets a person change what a dead letter sends: in an editor of theirs, or by files. It stores nothing.
package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Letter holds the payload and headers that a dead letter sends. A nil payload is SQL NULL, nil headers are none.
type Letter struct{ Payload, Headers []byte }

// Same reports whether both send the same bytes.
func (l Letter) Same(other Letter) bool {
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	return same(l.Payload, other.Payload) && same(l.Headers, other.Headers)
}

// FromFiles is the letter with what the files hold; an empty name leaves that part as it is. An empty file of headers
// is none.
func FromFiles(was Letter, payloadFile, headersFile string) (Letter, error) {
	var err error
	if payloadFile != "" {
		if was.Payload, err = os.ReadFile(payloadFile); err != nil {
			return was, fmt.Errorf("read the payload: %w", err)
		}
	}
	if headersFile != "" {
		if was.Headers, err = os.ReadFile(headersFile); err != nil {
			return was, fmt.Errorf("read the headers: %w", err)
		}
		if len(bytes.TrimSpace(was.Headers)) == 0 {
			was.Headers = nil
		}
	}
	return was, nil
}

// Editor is a program that changes files, and what it is connected with.
type Editor struct {
	Command string // as in $EDITOR: a program and perhaps flags
	In      io.Reader
	Out     io.Writer
	Indent  bool // the payload is of a type that does not keep its spaces
}

// Edit has the letter changed. The files are in dir, which only this user may read, and which the caller removes when
// they are not needed any more.
func (e Editor) Edit(ctx context.Context, was Letter) (now Letter, dir string, err error) {
	if dir, err = os.MkdirTemp("", "cdc-relay-edit-"); err != nil {
		return was, "", fmt.Errorf("make files for the editor: %w; set TMPDIR to a directory that this process "+
			"may write to, or use --payload-file and --headers-file", err)
	}
	payload, headers := was.Payload, indented(was.Headers)
	if e.Indent {
		payload = indented(payload)
	}
	now = was
	parts := []struct {
		name, path string
		text       []byte
		into       *[]byte
	}{{name: "payload.json", text: payload, into: &now.Payload}, {name: "headers.json", text: headers, into: &now.Headers}}
	args := []string{"-c", e.Command + ` "$@"`, "sh"}
	for i := range parts {
		p := &parts[i]
		p.path = filepath.Join(dir, p.name)
		if err := os.WriteFile(p.path, p.text, 0o600); err != nil {
			return was, dir, fmt.Errorf("make files for the editor: %w; set TMPDIR to a directory that this process "+
				"may write to, or use --payload-file and --headers-file", err)
		}
		args = append(args, p.path)
	}
	command := exec.CommandContext(ctx, "sh", args...)
	command.Stdin, command.Stdout, command.Stderr = e.In, e.Out, e.Out
	if err := command.Run(); err != nil {
		return was, dir, fmt.Errorf("run the editor %q: %w; nothing was changed", e.Command, err)
	}
	for _, p := range parts {
		text, err := os.ReadFile(p.path)
		if err != nil {
			return was, dir, fmt.Errorf("read what the editor has written: %w", err)
		}
		if !bytes.HasSuffix(p.text, []byte("\n")) { // most editors end a file with one
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		if !bytes.Equal(text, p.text) {
			*p.into = text
		}
	}
	if len(bytes.TrimSpace(now.Headers)) == 0 {
		now.Headers = nil
	}
	return now, dir, nil
}

// indented is JSON with a line for each member, and anything else as it is.
func indented(text []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return text
	}
	return out.Bytes()
}
