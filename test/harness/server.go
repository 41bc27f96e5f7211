package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// server is the process of a broker that has a directory of its own: killed, it is started again on what it had.
type server struct {
	Addr string // host:port

	name, dir string
	patience  time.Duration // with its start
	command   child.Config  // without Dir
	ready     func() error  // returns nil when it takes clients

	mu      sync.Mutex
	process *child.Process // guarded by mu
}

// begin gives the server a free address and a directory, has the rest described by what depends on them, and starts it.
func (s *server) begin(ctx context.Context, describe func() error) (err error) {
	if s.Addr, err = freeAddr(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "cdc-relay-"+s.name+"-"); err != nil {
		return fmt.Errorf("make a directory for %s: %w", s.name, err)
	}
	if err = describe(); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return errors.Join(err, s.end())
	}
	return nil
}

func (s *server) start(ctx context.Context) error {
	command := s.command
	command.Dir, command.DeathSignal = s.dir, syscall.SIGKILL
	process, err := child.Start(command)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return s.await(ctx, process)
}

// await waits until the server takes clients.
func (s *server) await(ctx context.Context, process *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended with code %d: %s", s.name, process.ExitCode(), process.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w; its log ends: %s", s.name, ctx.Err(), err, process.LastWords())
		case <-poll.C:
		}
	}
}

// firstLine returns the server's first line, or its answer to a question.
func (s *server) firstLine(asked string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(asked)); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// listens is ready for a server that says nothing first.
func (s *server) listens() error {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Kill9 kills the server and waits for its end.
func (s *server) Kill9() {
	if process := s.current(); process != nil {
		process.Kill()
	}
}

// Freeze stops the server where it is.
func (s *server) Freeze() { s.current().Freeze() }

// Thaw lets a frozen server go on.
func (s *server) Thaw() { s.current().Thaw() }

func (s *server) current() *child.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Start starts the server again, on the same address and data, and waits until it answers.
func (s *server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// end kills the server and removes what it had.
func (s *server) end() error {
	s.Kill9()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the directory of %s: %w", s.name, err)
	}
	return nil
}

// of leaves the server to one test, which fails, or is skipped, if the server did not start.
func (s *server) of(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		missing(t, s.name, err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}
