package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
)

// Addresses is printed by cdc-relay-demo serve, as one line of JSON, once its servers answer.
type Addresses struct {
	PostgresURL  string   `json:"postgres_url"`
	KafkaBrokers []string `json:"kafka_brokers"`
}

// Configure makes them the servers of a configuration. They know no logins, which are for others.
func (s Addresses) Configure(cfg *config.Config) {
	cfg.Postgres.URL, cfg.Postgres.ReplicationURL = s.PostgresURL, ""
	cfg.Postgres.PasswordFile, cfg.Postgres.PasswordCommand = "", nil
	cfg.Kafka.Brokers, cfg.Sink = s.KafkaBrokers, config.SinkKafka
	cfg.Kafka.TLS, cfg.Kafka.SASL = config.Default().Kafka.TLS, config.Default().Kafka.SASL
}

// Servers are throw-away servers in a process of their own. They end when Close is called, or this process ends.
type Servers struct {
	Addresses
	process *exec.Cmd
	leash   io.Closer // standard input of the process: it ends when that does
}

// Serve starts a Postgres and a stand-in for Kafka.
func Serve(ctx context.Context, a *cli.App) (*Servers, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(context.WithoutCancel(ctx), path, "serve")
	process.Env, process.Stderr = a.Environ, cli.Beneath(a.Err)
	leash, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	answer, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	s := &Servers{process: process, leash: leash}
	stop := context.AfterFunc(ctx, func() { _ = leash.Close() }) // while they start
	line, err := bufio.NewReader(answer).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.Addresses)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Close() // it has said why on standard error
		return nil, fmt.Errorf("start the demo's servers: %w", err)
	}
	return s, nil
}

// Close stops the servers.
func (s *Servers) Close() error {
	_ = s.leash.Close()
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("stop the demo's servers: %w", err)
	}
	return nil
}
