package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/relay"
)

// childRelay is a relay in a process of its own, which can be killed.
type childRelay struct {
	address string // of its console
	environ []string
	errs    io.Writer
	process *exec.Cmd
	leash   io.Closer  // standard input of the process: it ends when that does
	ended   chan error // gets the result of the process
}

// relayCommand returns the hidden command that childRelay runs.
func relayCommand() *cobra.Command {
	c := cli.Command("relay", "Run the relay alone, for demo --break.", "", runRelayAlone)
	c.Hidden = true
	return c
}

// runRelayAlone relays until standard input ends. It ignores Ctrl-C: the program that started it decides.
func runRelayAlone(a *cli.App) (err error) {
	signal.Ignore(syscall.SIGINT)
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	log, lines := a.Logger(cfg)
	r, err := newRelay(a, cfg, log, relay.WithLoggerTo(log, lines))
	if err != nil {
		return err
	}
	server, err := web.Listen(webConfig(cfg, log), r)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	return errors.Join(r.Run(ctx), server.Close())
}

// newChild prepares a relay for the servers of a configuration.
func newChild(ctx context.Context, a *cli.App, cfg config.Config) (*childRelay, error) {
	address, err := freeAddress(ctx, cfg.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	c := &childRelay{address: address, errs: cli.Beneath(a.Err)}
	for _, pair := range a.Environ {
		if !strings.HasPrefix(pair, "CDC_RELAY_") {
			c.environ = append(c.environ, pair)
		}
	}
	c.environ = append(c.environ,
		"CDC_RELAY_POSTGRES_URL="+cfg.Postgres.URL, "CDC_RELAY_KAFKA_BROKERS="+strings.Join(cfg.Kafka.Brokers, ","),
		"CDC_RELAY_HTTP_LISTEN="+address, "CDC_RELAY_LOG_LEVEL=error", "CDC_RELAY_LOG_FORMAT="+cfg.Log.Format,
		"CDC_RELAY_LIMITS_MAX_EVENT_BYTES="+strconv.Itoa(poisonBytes/2))
	return c, nil
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

// start starts it and waits until it streams.
func (c *childRelay) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c.process = exec.Command(program, "relay") //nolint:noctx // it ends with its leash
	c.process.Env, c.process.Stderr = c.environ, c.errs
	leash, err := c.process.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	if err := c.process.Start(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	c.leash, c.ended = leash, make(chan error, 1)
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(c.process, c.ended)
	return c.awaitActive(ctx)
}

// kill ends it as a crash does.
func (c *childRelay) kill() error {
	if err := c.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill the relay: %w", err)
	}
	if err := <-c.ended; err == nil {
		return errors.New("kill the relay: it ended by itself before")
	}
	return nil
}

// stop lets it end in an orderly way.
func (c *childRelay) stop() error {
	_ = c.leash.Close()
	if err := <-c.ended; err != nil {
		return fmt.Errorf("stop the relay: %w", err)
	}
	return nil
}

// awaitActive asks for its role until it streams.
func (c *childRelay) awaitActive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		role, err := c.role(ctx)
		if err == nil && role == "active" {
			return nil
		}
		select {
		case err := <-c.ended:
			c.ended <- err
			return fmt.Errorf("the relay ended: %w", err)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the relay is %q after %s", role, patience), err)
		case <-ticker.C:
		}
	}
}

func (c *childRelay) role(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/api/v1/status", nil)
	if err != nil {
		return "", fmt.Errorf("ask the relay: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the relay: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var status struct{ Role string }
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return "", fmt.Errorf("ask the relay: %w", err)
	}
	return status.Role, nil
}
