//go:build !kafkaonly

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/nats"
)

// natsPatience bounds how long the server may take to be ready.
const natsPatience = 20 * time.Second

// embeddedNATS is a real server with JetStream, in this process, with its files in a directory of its own.
type embeddedNATS struct {
	*server.Server
	dir string
}

// startNATS starts one on a free port, with a stream for each subject.
func startNATS(subjects []string) (natsServer, error) {
	dir, err := os.MkdirTemp("", "cdc-relay-demo-nats-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for NATS: %w", err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: %w", err), os.RemoveAll(dir))
	}
	n := &embeddedNATS{s, dir}
	s.Start()
	if !s.ReadyForConnections(natsPatience) {
		return nil, errors.Join(errors.New("start NATS: it is not ready for connections"), n.stop())
	}
	for i, subject := range subjects {
		if err := n.makeStream(fmt.Sprintf("demo-%d", i), subject); err != nil {
			return nil, errors.Join(fmt.Errorf("create a stream for %s: %w", subject, err), n.stop())
		}
	}
	return n, nil
}

func (n *embeddedNATS) makeStream(name, subject string) error {
	nc, err := client.Connect(n.ClientURL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AddStream(&client.StreamConfig{Name: name, Subjects: []string{subject}, Duplicates: time.Second})
	return err
}

func (n *embeddedNATS) stop() error {
	n.Shutdown()
	n.WaitForShutdown()
	return os.RemoveAll(n.dir)
}

// consumeNATS hands out the subjects' messages until the context ends.
func consumeNATS(ctx context.Context, url string, subjects []string, take func(arrival, time.Time)) error {
	nc, err := client.Connect(url)
	if err != nil {
		return fmt.Errorf("consume from NATS: %w", err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		return fmt.Errorf("consume from NATS: %w", err)
	}
	for _, subject := range subjects {
		_, err := js.Subscribe(subject, func(m *client.Msg) {
			take(arrival{id: m.Header.Get("id"), created: m.Header.Get("created_at"), key: m.Header.Get("x-outbox-key"),
				value: m.Data}, time.Now())
		}, client.OrderedConsumer(), client.DeliverAll())
		if err != nil {
			return fmt.Errorf("consume subject %s: %w", subject, err)
		}
	}
	<-ctx.Done()
	return nil
}

func natsDriver(cfg config.Config) (sink.Driver, error) {
	return nats.New(nats.Config{URL: cfg.NATS.URL, Name: cfg.Service})
}
