package secret

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// script is a program that runs the shell text; each run leaves a line in the file runs.
func script(t *testing.T, text string) (program, runs string) {
	t.Helper()
	dir := t.TempDir()
	program, runs = filepath.Join(dir, "token"), filepath.Join(dir, "runs")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho run >> "+runs+"\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, runs
}

func ran(t *testing.T, runs string) int {
	t.Helper()
	b, err := os.ReadFile(runs)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "run\n")
}

func read(t *testing.T, s *Source) string {
	t.Helper()
	password, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return password
}

// Breaks it catches: a file that is read once. Seen to fail with the end of the line kept.
func TestAFileIsReadAtEachConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	s := File("postgres.password_file", path)
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "postgres.password_file") {
		t.Errorf("without the file: got the error %v, want one that names the key", err)
	}
	for _, want := range []string{"first", "second word "} {
		if err := os.WriteFile(path, []byte(want+"\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if s.Refused() {
		t.Error("a refused password of a file: got that the next may be another, want that a person must write it")
	}
}

// Breaks it catches: passwords that are kept too long or not at all, an answer that is guessed at. Seen to fail with
// what is printed kept without an end, kept to its very end, an expired one taken, and Refused forgetting nothing.
func TestAProgramIsRunUntilItsAnswerExpires(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	object := func(expires string) string {
		return fmt.Sprintf(`echo '{"password": "pw", "expires_at": "%s"}'`, expires)
	}
	for name, c := range map[string]struct {
		text string
		runs int // of two reads
	}{
		"a line":                {"echo pw", 2},
		"an hour":               {object(in(time.Hour)), 1},
		"about to expire":       {object(in(20 * time.Second)), 2},
		"an object without end": {`echo '{"password": "pw"}'`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			program, runs := script(t, c.text)
			s := Command("postgres.password_command", []string{program})
			for range 2 {
				if got := read(t, s); got != "pw" {
					t.Errorf("got %q, want pw", got)
				}
			}
			if got := ran(t, runs); got != c.runs {
				t.Errorf("two reads ran the program %d times, want %d", got, c.runs)
			}
			if !s.Refused() {
				t.Error("refused: got that no other password can follow, want that the program is asked anew")
			}
			read(t, s)
			if got := ran(t, runs); got != c.runs+1 {
				t.Errorf("a read after a refusal: got %d runs in all, want %d", got, c.runs+1)
			}
		})
	}
}

// Breaks it catches: a token in an error, an error that says neither which key nor what the program said. Seen to fail
// with what was printed added to the errors, standard error left out, and several lines taken for a password.
func TestWhatGoesWrongIsSaidWithoutThePassword(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"failed":     {"echo hunter2; echo no credentials >&2; exit 3", `exit status 3; it said: "no credentials"`},
		"nothing":    {"echo", "printed nothing"},
		"two lines":  {"echo hunter2; echo hunter2", "printed more than one line"},
		"expired":    {`echo '{"password": "hunter2", "expires_at": "2020-01-31T12:00:00Z"}'`, "expired at 2020-01-31"},
		"other JSON": {`echo '{"token": "hunter2"}'`, "printed JSON that is not"},
		"bad time":   {`echo '{"password": "hunter2", "expires_at": "soon"}'`, "printed JSON that is not"},
		"too long":   {"head -c 70000 /dev/zero | tr '\\0' x", "printed more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			program, _ := script(t, c.text)
			_, err := Command("kafka.sasl.password_command", []string{program}).Read(t.Context())
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range []string{"kafka.sasl.password_command", program, c.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
	_, err := Command("postgres.password_command", []string{"/no/such/program"}).Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a program that is not there: got the error %v, want its path in it", err)
	}
}

// Breaks it catches: a program per connection of a pool that starts, and a stop that waits for a program. Seen to fail
// with each reader running the program itself, and with a context that does not reach it.
func TestReadersShareOneRunAndNoneOutlivesItsContext(t *testing.T) {
	program, runs := script(t, "sleep 0.2; echo pw")
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if got, err := Command("postgres.password_command", []string{program}).Read(t.Context()); got != "pw" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wait.Wait()
	if got := ran(t, runs); got > 2 { // who came before the first began, and all others
		t.Errorf("20 readers at once ran the program %d times, want at most twice", got)
	}
	slow, _ := script(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Command("postgres.password_command", []string{slow}).Read(ctx); err == nil {
		t.Error("a program that does not end: got no error")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a read whose context ended took %v", took)
	}
}
