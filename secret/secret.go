// Package secret reads passwords that change while the process runs: from a file, or from a program that prints them,
// such as the one that makes short-lived tokens for a cloud's database. What a program printed is kept in memory until
// it expires, and is in no log and no error.
package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Patience is how long a program may take. It is asked while a connection is being made.
	Patience = 20 * time.Second
	// spare is how long before its end a password is taken for expired: a login takes time, and clocks differ.
	spare = 30 * time.Second
	// most is the size of what a program may print. AWS's tokens have some 1,500 bytes.
	most = 64 << 10
	// mostSaid is how much of a program's standard error goes into an error.
	mostSaid = 300
)

// Source is where a password comes from. It may be asked by any number of goroutines. A nil *Source has none.
type Source struct {
	key     string // of the configuration, for errors
	file    string
	command []string

	turn chan struct{} // who has it runs the program
	mu   sync.Mutex
	kept answer
}

// answer is what a program printed.
type answer struct {
	password string
	asked    time.Time // when the program was started
	until    time.Time // zero: the program did not say
}

// File is the source that reads a file at each connect. The end of its line is not part of the password.
func File(key, path string) *Source { return &Source{key: key, file: path} }

// ReadFile is the password that a file holds, without the ends of lines behind it.
func ReadFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimRight(string(b), "\r\n"), err
}

// programs are the sources of this process that run a program, so that its connections to one server share what the
// program printed.
var programs sync.Map

// Command is the source that runs a program: its path, or a name to look for in PATH, and its arguments, without a
// shell. There is one for each program and its arguments in a process.
func Command(key string, words []string) *Source {
	s := &Source{key: key, command: slices.Clone(words), turn: make(chan struct{}, 1)}
	kept, _ := programs.LoadOrStore(key+"\x00"+strings.Join(words, "\x00"), s)
	return kept.(*Source)
}

// Of is the source that a configuration names: a program, a file, or nil for neither. The keys begin with prefix.
func Of(prefix, file string, command []string) *Source {
	switch {
	case len(command) > 0:
		return Command(prefix+".password_command", command)
	case file != "":
		return File(prefix+".password_file", file)
	}
	return nil
}

// Read is the password for a connection that is made now. The error names the configuration's key.
func (s *Source) Read(ctx context.Context) (string, error) {
	if s.command == nil {
		password, err := ReadFile(s.file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.key, err)
		}
		return password, nil
	}
	asked := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", s.key, context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	if password, good := s.remembered(asked); good {
		return password, nil
	}
	a, err := s.run(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.key, err)
	}
	s.mu.Lock()
	s.kept = a
	s.mu.Unlock()
	return a.password, nil
}

// remembered is the password that was printed before, if it has not expired, or if the program was started for somebody
// else after this reader had asked.
func (s *Source) remembered(asked time.Time) (password string, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept.asked.After(asked) {
		return s.kept.password, true
	}
	return s.kept.password, s.kept.until.After(time.Now().Add(spare))
}

// Refused tells the source that a server did not take the password, and reports whether the next one may be another: a
// program is asked anew. A file's is whatever a person writes into it.
func (s *Source) Refused() bool {
	if s == nil || s.command == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = answer{}
	return true
}

// Key is the configuration's, for messages; "" without a source.
func (s *Source) Key() string {
	if s == nil {
		return ""
	}
	return s.key
}

func (s *Source) run(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	a := answer{asked: time.Now()}
	var out, said limited
	program := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	program.Stdout, program.Stderr = &out, &said
	program.WaitDelay = time.Second // for what it started and left behind, which may hold its output open
	err := program.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return a, fmt.Errorf("%s did not end within %v%s", s.command[0], Patience, said.quoted())
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err != nil:
		return a, fmt.Errorf("run %s: %w%s", s.command[0], err, said.quoted())
	case out.cut:
		return a, fmt.Errorf("%s printed more than %d bytes", s.command[0], most)
	}
	if err := a.parse(out.buf.Bytes()); err != nil {
		return a, fmt.Errorf("%s %w%s", s.command[0], err, said.quoted())
	}
	return a, nil
}

// parse takes a password, or an object of JSON that says when the password expires. No error shows what was printed.
func (a *answer) parse(printed []byte) error {
	text := bytes.TrimSpace(printed)
	var object struct {
		Password  string    `json:"password"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	switch {
	case len(text) == 0:
		return errors.New("printed nothing")
	case bytes.ContainsAny(text, "\r\n") && !json.Valid(text):
		return errors.New("printed more than one line")
	case text[0] != '{' || !json.Valid(text):
		a.password = string(text)
		return nil
	}
	if json.Unmarshal(text, &object) != nil || object.Password == "" {
		return errors.New(`printed JSON that is not {"password": "…", "expires_at": "2027-01-31T12:00:00Z"}`)
	}
	if !object.ExpiresAt.IsZero() && !object.ExpiresAt.After(time.Now()) {
		return fmt.Errorf("printed a password that expired at %s", object.ExpiresAt.Format(time.RFC3339))
	}
	a.password, a.until = object.Password, object.ExpiresAt
	return nil
}

// limited keeps the first bytes of what is written.
type limited struct {
	buf bytes.Buffer
	cut bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := most - l.buf.Len()
	l.cut = l.cut || len(p) > room
	l.buf.Write(p[:min(len(p), room)])
	return len(p), nil
}

// quoted is what a program said about its failure, in one line.
func (l *limited) quoted() string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(l.buf.String()), " "), "?")
	if text == "" {
		return ""
	}
	if len(text) > mostSaid {
		text = strings.ToValidUTF8(text[:mostSaid], "") + "…"
	}
	return fmt.Sprintf("; it said: %q", text)
}
