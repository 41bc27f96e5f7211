// Package secret reads passwords that change while the process runs: from a file, from a program that prints them, such
// as the one that makes short-lived tokens for a cloud's database, or from an OAuth 2.0 server that issues tokens. What
// a program or a server gave is kept in memory until it expires, and is in no log and no error.
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
	// Patience bounds the run time of a program. It is asked while a connection is being made.
	Patience = 20 * time.Second
	// spare is the time before its end at which a password counts as expired: a login takes time, and clocks differ.
	spare = 30 * time.Second
	// A password in the last fifth of its life is replaced if that succeeds, and used if not: where it comes from may be
	// away for so long unnoticed. It is tried at most once in renewPause.
	renewPause = 10 * time.Second
	// maxLife bounds what is believed of a token's life.
	maxLife = 10 * 365 * 24 * time.Hour
	// most is the size of what a program may print. AWS's tokens have some 1,500 bytes.
	most = 64 << 10
	// mostSaid bounds the part of a program's standard error in an error, in bytes.
	mostSaid = 300
)

// Source yields a password. Any number of goroutines may ask it. A nil *Source has none.
type Source struct {
	key  string // of the configuration, for errors
	file string
	ask  func(context.Context) (answer, error) // within Patience, and one at a time; nil: the file is read

	turn    chan struct{} // who has it asks
	mu      sync.Mutex
	kept    answer
	renewed time.Time // when another was last asked for although the one kept was good
}

// answer is a program's output, or a server's token.
type answer struct {
	password string
	asked    time.Time // when the program was started
	until    time.Time // zero: not known
}

// good reports whether the password can still be used.
func (a answer) good(now time.Time) bool { return a.until.After(now.Add(spare)) }

// young reports whether it need not be replaced yet.
func (a answer) young(now time.Time) bool {
	return now.Before(a.asked.Add(a.until.Sub(a.asked) / 5 * 4))
}

// File is the source that reads a file at each connect. The end of its line is not part of the password.
func File(key, path string) *Source { return &Source{key: key, file: path} }

// ReadFile is the password that a file holds, without the ends of lines behind it.
func ReadFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimRight(string(b), "\r\n"), err
}

// askers are the sources of this process that run a program or ask a server, so that its connections to one server
// share the answer.
var askers sync.Map

func shared(key, identity string, ask func(context.Context) (answer, error)) *Source {
	s := &Source{key: key, ask: ask, turn: make(chan struct{}, 1)}
	kept, _ := askers.LoadOrStore(key+"\x00"+identity, s)
	return kept.(*Source)
}

// Command is the source that runs a program: its path, or a name to look for in PATH, and its arguments, without a
// shell. There is one for each program and its arguments in a process.
func Command(key string, words []string) *Source {
	words = slices.Clone(words)
	return shared(key, strings.Join(words, "\x00"), func(ctx context.Context) (answer, error) { return run(ctx, words) })
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
	if s.ask == nil {
		password, err := ReadFile(s.file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.key, err)
		}
		return password, nil
	}
	began := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", s.key, context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	kept, good, enough := s.remembered(began)
	if enough {
		return kept, nil
	}
	patience := Patience
	if good { // a login must follow in the time that is left
		patience = Patience / 2
		if end, limited := ctx.Deadline(); limited {
			patience = min(time.Until(end)/2, Patience)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := s.ask(ctx)
	if err != nil && good {
		return kept, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.key, err)
	}
	s.mu.Lock()
	s.kept = a
	s.mu.Unlock()
	return a.password, nil
}

// remembered is the password that was given before. It is good if it has not expired; it is enough if it need not be
// replaced either, or if another reader asked for it after this one had begun.
func (s *Source) remembered(began time.Time) (password string, good, enough bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept.asked.After(began) {
		return s.kept.password, true, true
	}
	good = s.kept.good(now)
	if enough = good && (s.kept.young(now) || now.Sub(s.renewed) < renewPause); good && !enough {
		s.renewed = now
	}
	return s.kept.password, good, enough
}

// Refused tells the source that a server did not take the password, and reports whether the next one may be another: a
// program or a server is asked again. A file's is its content.
func (s *Source) Refused() bool {
	if s == nil || s.ask == nil {
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

func run(ctx context.Context, words []string) (answer, error) {
	a := answer{asked: time.Now()}
	var out, said limited
	program := exec.CommandContext(ctx, words[0], words[1:]...)
	program.Stdout, program.Stderr = &out, &said
	program.WaitDelay = time.Second // for what it started and left behind, which may hold its output open
	err := program.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return a, fmt.Errorf("%s did not end within %v%s", words[0], time.Since(a.asked).Round(time.Millisecond),
			said.quoted())
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err != nil:
		return a, fmt.Errorf("run %s: %w%s", words[0], err, said.quoted())
	case out.cut:
		return a, fmt.Errorf("%s printed more than %d bytes", words[0], most)
	}
	if err := a.parse(out.buf.Bytes()); err != nil {
		return a, fmt.Errorf("%s %w%s", words[0], err, said.quoted())
	}
	return a, nil
}

// parse takes a password, or an object of JSON that says when the password expires: ours, or that of a token endpoint
// (RFC 6749, section 5.1). No error shows what was printed.
func (a *answer) parse(printed []byte) error {
	text := bytes.TrimSpace(printed)
	var object struct {
		Password    string      `json:"password"`
		ExpiresAt   time.Time   `json:"expires_at"`
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"` // seconds; Azure writes it as text
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
	if json.Unmarshal(text, &object) != nil || (object.Password == "") == (object.AccessToken == "") {
		return errors.New(`printed JSON that is not {"password": "…", "expires_at": "2027-01-31T12:00:00Z"}`)
	}
	if seconds, err := object.ExpiresIn.Float64(); err == nil && object.AccessToken != "" {
		object.ExpiresAt = a.asked.Add(time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second)))
	}
	if !object.ExpiresAt.IsZero() && !object.ExpiresAt.After(time.Now()) {
		return fmt.Errorf("printed a password that expired at %s", object.ExpiresAt.Format(time.RFC3339))
	}
	a.password, a.until = object.Password+object.AccessToken, object.ExpiresAt
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

// quoted returns a program's message about its failure, in one line.
func (l *limited) quoted() string { return quote(l.buf.String()) }

func quote(said string) string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(said), " "), "?")
	if text == "" {
		return ""
	}
	if len(text) > mostSaid {
		text = strings.ToValidUTF8(text[:mostSaid], "") + "…"
	}
	return fmt.Sprintf("; it said: %q", text)
}
