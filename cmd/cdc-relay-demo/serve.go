package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// servers are the throw-away servers of this process.
type servers struct {
	postgres *embedded.Postgres
	broker   *embedded.FakeKafka      // nil: NATS
	kafka    embedded.FakeKafkaConfig // to start broker again, with what it keeps in its directory
	nats     natsServer               // nil: the stand-in for Kafka
}

// natsServer is a NATS in this process.
type natsServer interface {
	ClientURL() string
	stop() error
}

// startWithNATS starts NATS in the place of the stand-in for Kafka.
func startWithNATS(ctx context.Context, subjects []string) (*servers, error) {
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Password: rand.Text()})
	if err != nil {
		return nil, err
	}
	nats, err := startNATS(subjects)
	if err != nil {
		return nil, errors.Join(err, postgres.Stop())
	}
	return &servers{postgres: postgres, nats: nats}, nil
}

func start(ctx context.Context, topics map[string]int32) (*servers, error) {
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Password: rand.Text()})
	if err != nil {
		return nil, err
	}
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: topics})
	if err != nil {
		return nil, errors.Join(err, postgres.Stop())
	}
	return &servers{postgres: postgres, broker: broker}, nil
}

func (s *servers) stop() error {
	var err error
	if s.nats != nil {
		err = s.nats.stop()
	} else {
		s.broker.Close()
		if s.kafka.DataDir != "" {
			err = os.RemoveAll(s.kafka.DataDir)
		}
	}
	return errors.Join(err, s.postgres.Stop())
}

func (s *servers) addresses() demo.Addresses {
	a := demo.Addresses{PostgresURL: s.postgres.URL("postgres")}
	if s.broker != nil {
		a.KafkaBrokers = s.broker.Addresses()
	}
	return a
}

func serveCommand() *cobra.Command {
	return cli.Command("serve", "Start the servers alone, for cdc-relay bench --demo.",
		`Prints the addresses of a Postgres and a stand-in for Kafka as one line of JSON, and stops both when its
standard input ends. It ignores Ctrl-C: the program that started it decides.

Example:

  cdc-relay-demo serve`, serve)
}

// leashed returns a context that ends when standard input does. Ctrl-C is ignored.
func leashed() (ctx context.Context, stop context.CancelFunc) {
	signal.Ignore(syscall.SIGINT)
	ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx, stop
}

// serve serves until standard input ends.
func serve(a *cli.App) (err error) {
	ctx, stop := leashed()
	defer stop()
	s, err := start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	line, err := json.Marshal(s.addresses())
	if err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	if err := a.Script(string(line) + "\n"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
