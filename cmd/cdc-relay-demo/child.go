package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
)

// childRelay is a relay in a process of its own, which can be killed. One goroutine starts and ends it.
type childRelay struct {
	address string // of its console
	environ []string
	errs    io.Writer
	asked   chan string // what is asked for in the console; full: it is dropped
	lost    chan error  // gets the end of a process that was not asked for

	process *exec.Cmd
	leash   io.WriteCloser // standard input of the process: it ends when that does
	ended   chan error     // gets the result of the process
	meant   *atomic.Bool   // its end is asked for

	mu      sync.Mutex // guards what follows
	figures figures
	changed chan struct{} // closed when the figures change
}

// newChild prepares a relay for the servers of a configuration.
func newChild(ctx context.Context, a *cli.App, cfg config.Config) (*childRelay, error) {
	address, err := freeAddress(ctx, cfg.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	c := &childRelay{address: address, errs: cli.Beneath(a.Err), asked: make(chan string, 1), lost: make(chan error, 1),
		changed: make(chan struct{})}
	for _, pair := range a.Environ {
		if !strings.HasPrefix(pair, config.EnvPrefix) {
			c.environ = append(c.environ, pair)
		}
	}
	cfg.HTTP.Listen = address
	c.environ = append(append(c.environ, environment(cfg)...),
		"CDC_RELAY_POSTGRES_URL="+cfg.Postgres.URL, "CDC_RELAY_LIMITS_MAX_EVENT_BYTES="+strconv.Itoa(poisonBytes/2))
	return c, nil
}

// environment returns the settings that differ from the defaults, as variables. Masked ones and mappings are left out:
// they belong to servers that the demo does not use.
func environment(cfg config.Config) (pairs []string) {
	names := map[string]string{}
	for _, k := range config.Keys() {
		names[k.Name] = k.Env
	}
	for _, s := range cfg.Shown() {
		if s.IsDefault || strings.Contains(s.Value, "xxxxx") || strings.HasPrefix(s.Value, "{") {
			continue
		}
		value := s.Value
		if list, is := strings.CutPrefix(value, "["); is && strings.HasSuffix(list, "]") {
			value = strings.TrimSuffix(list, "]")
		}
		pairs = append(pairs, names[s.Key]+"="+value)
	}
	return pairs
}

// freeAddress is the address that is asked for, or one with a free port if another process has it.
func freeAddress(ctx context.Context, wanted string) (string, error) {
	listen := new(net.ListenConfig).Listen
	l, err := listen(ctx, "tcp", wanted)
	if errors.Is(err, syscall.EADDRINUSE) && wanted == config.Default().HTTP.Listen {
		l, err = listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", fmt.Errorf("listen for HTTP: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// start starts it, shows it the scene, and waits until it streams.
func (c *childRelay) start(ctx context.Context, now scene) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	process := exec.Command(program, "relay") //nolint:noctx // it ends with its leash
	process.Env, process.Stderr = c.environ, c.errs
	leash, err := process.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	reports, err := process.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	c.take(report{Figures: &figures{Role: relay.RoleStarting}})
	if err := process.Start(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	ended, meant := make(chan error, 1), new(atomic.Bool)
	c.process, c.leash, c.ended, c.meant = process, leash, ended, meant
	go func() {
		receive(reports, c.take) // to the end, which Wait does not wait for
		err := process.Wait()
		if !meant.Load() {
			c.lost <- err // one process is lost at most: the demo ends with it
		}
		ended <- err
	}()
	c.show(now)
	return c.awaitActive(ctx)
}

// take notes what the process reports.
func (c *childRelay) take(r report) {
	if r.Break != "" {
		select {
		case c.asked <- r.Break:
		default:
		}
	}
	if r.Figures == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures = *r.Figures
	close(c.changed)
	c.changed = make(chan struct{})
}

// status is the last report of the process.
func (c *childRelay) status() figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.figures
}

// show has the console show the scene. A process that was killed is shown it when it starts again.
func (c *childRelay) show(s scene) { _ = (&sender{to: c.leash}).send(s) }

// kill ends it as a crash does.
func (c *childRelay) kill() error {
	c.meant.Store(true)
	if err := c.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill the relay: %w", err)
	}
	if err := <-c.ended; err == nil {
		return errors.New("kill the relay: it ended by itself before")
	}
	c.take(report{Figures: &figures{Role: "killed"}})
	return nil
}

// stop lets it end in an orderly way.
func (c *childRelay) stop() error {
	c.meant.Store(true)
	_ = c.leash.Close()
	if err := <-c.ended; err != nil {
		return fmt.Errorf("stop the relay: %w", err)
	}
	return nil
}

// awaitActive waits until it streams.
func (c *childRelay) awaitActive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c.mu.Lock()
		role, changed := c.figures.Role, c.changed
		c.mu.Unlock()
		if role == relay.RoleActive {
			return nil
		}
		select {
		case err := <-c.ended:
			c.ended <- err
			return fmt.Errorf("the relay ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the relay is %q after %s", role, patience)
		case <-changed:
		}
	}
}

// watchOver waits until the process ends without being asked to.
func (c *childRelay) watchOver(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.lost:
		if err == nil {
			return errors.New("the relay ended, and no one asked it to")
		}
		return fmt.Errorf("the relay ended: %w", err)
	}
}
