package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
)

const childVariable = "INBOX_TEST_CHILD"

// childConfig configures a consumer in a process of its own.
type childConfig struct {
	URL      string
	Brokers  []string
	Topic    string
	Protocol bool // Kafka's newer one
	Flaky    float64
	Peer     string // another library, that does the same; see peers_test.go
	Group    string // of Kafka; empty: billing
	Update   bool   // each event is one UPDATE, and nothing else
	Once     string // a file: the process that creates it freezes at an event that says so
	Broker   string // another one than Kafka; see brokers_test.go
}

// playChild is the consumer's main.
func playChild() {
	if err := consume(); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func consume() error {
	var config childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &config); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, config.URL+"&pool_max_conns=6")
	if err != nil {
		return err
	}
	defer pool.Close()
	if config.Peer != "" {
		return config.peer(ctx, pool)
	}
	options := []kgo.Opt{kgo.HeartbeatInterval(time.Second)}
	if !config.Protocol {
		options = append(options, kgo.SessionTimeout(6*time.Second))
	}
	if config.Group != "" {
		options = append(options, kgo.SessionTimeout(peerSession), kgo.HeartbeatInterval(time.Second/2))
	}
	settings := inbox.Config{
		Name: "billing", Group: config.Group, Brokers: config.Brokers, Topics: []string{config.Topic},
		ConsumerProtocol: config.Protocol, Client: options, IdleTimeout: 3 * time.Second, MaxEvents: 3000,
		Retry: inbox.Retry{MaxAttempts: 8, InitialBackoff: 5 * time.Millisecond, MaxBackoff: time.Second, ParkAfter: 2},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if config.Broker != "" {
		settings.Brokers, settings.Topics, settings.Client = nil, nil, nil
		var hangUp func()
		if settings.Source, hangUp, err = sourceOf(config.Broker, config.Brokers[0], config.Topic); err != nil {
			return err
		}
		defer hangUp()
	}
	c, err := inbox.New(pool, settings)
	if err != nil {
		return err
	}
	if config.Update {
		onUpdate(c)
		return c.Run(ctx)
	}
	inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		switch {
		case e.Payload.Fails == "permanent":
			return inbox.Permanent(errors.New("no such customer"))
		case e.Payload.Fails == "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case e.Payload.Fails == "freeze" && config.first():
			err := apply(ctx, tx, e)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			return err
		case rand.Float64() < config.Flaky:
			return errors.New("not now")
		}
		return apply(ctx, tx, e)
	})
	return c.Run(ctx)
}

// first reports whether this process is the first one to ask.
func (c childConfig) first() bool {
	file, err := os.OpenFile(c.Once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_, _ = fmt.Fprint(file, os.Getpid())
	return file.Close() == nil
}

// process is a consumer in a process of its own.
type process struct {
	t       *testing.T
	config  childConfig
	command *exec.Cmd
	log     *os.File
}

func startProcess(t *testing.T, config childConfig) *process {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "consumer-")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, config: config, log: file}
	p.start()
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Clean(file.Name()))
			t.Logf("a consumer has said, at last:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	text, err := json.Marshal(p.config)
	if err != nil {
		p.t.Fatal(err)
	}
	p.command = exec.CommandContext(context.WithoutCancel(p.t.Context()), os.Args[0]) //nolint:gosec // this program
	p.command.Env = append(os.Environ(), childVariable+"="+string(text))
	p.command.Stderr = p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	_ = p.command.Wait()
}

// stop ends it in good order.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("a consumer that was asked to stop: %v", err)
	}
}
