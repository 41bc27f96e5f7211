package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// patience is how long a run waits for anything before it gives up.
const patience = 5 * time.Minute

const (
	tick    = 2 * time.Millisecond
	prefix  = "cdc_relay_bench_"
	writers = 8
)

// area is a schema, a slot, a publication and a topic for one run.
type area struct {
	o           Options
	name, topic string
	cfg         config.Config
	dialer      *kafkago.Dialer
	client      *kafkago.Client
}

// newArea makes the area, with an empty outbox and a slot at the end of the WAL.
func (o Options) newArea(ctx context.Context) (*area, error) {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	name := prefix + hex.EncodeToString(random[:])
	b := &area{o: o, name: name, topic: strings.ReplaceAll(name, "_", "-")}
	b.cfg = b.configure(o.Config)
	var err error
	if b.dialer, b.client, err = brokers.KafkaClients(b.cfg); err != nil {
		return nil, err
	}
	if err := errors.Join(b.exec(ctx, "CREATE SCHEMA "+name), b.createTopic(ctx)); err != nil {
		return nil, errors.Join(err, b.remove(context.WithoutCancel(ctx)))
	}
	st, err := store.Open(ctx, relay.StoreConfig(b.cfg))
	if err == nil {
		defer st.Close()
		err = install.All(ctx, b.cfg, st)
	}
	if err != nil {
		return nil, errors.Join(err, b.remove(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// configure returns the user's configuration with the area's own table, slot and topic.
func (b *area) configure(cfg config.Config) config.Config {
	defaults := config.Default()
	after := cfg.Outbox.AfterPublish
	if after == config.AfterPublishDelete {
		after = config.AfterPublishMark // the judge compares records with rows, which must still be there
	}
	cfg.Postgres.Schema, cfg.Postgres.Slot, cfg.Postgres.Publication = b.name, b.name, b.name
	cfg.Outbox, cfg.DLQ = defaults.Outbox, defaults.DLQ
	cfg.Outbox.Table, cfg.Outbox.AfterPublish = b.name+".outbox_events", after
	cfg.Message = defaults.Message
	cfg.Message.Topic = b.topic
	cfg.OnHalt = config.OnHaltExit
	return cfg
}

func (b *area) exec(ctx context.Context, statements ...string) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(b.cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (b *area) createTopic(ctx context.Context) error {
	copies := b.o.ReplicationFactor
	if copies == 0 {
		const usual = 3
		answer, err := b.client.Metadata(ctx, &kafkago.MetadataRequest{})
		if err != nil {
			return fmt.Errorf("ask for the brokers: %w", err)
		}
		copies = min(usual, len(answer.Brokers))
	}
	answer, err := b.client.CreateTopics(ctx,
		&kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: b.topic, NumPartitions: b.o.Partitions,
			ReplicationFactor: copies}}})
	if err == nil {
		err = answer.Errors[b.topic]
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", b.topic, err)
	}
	return nil
}

// remove takes everything away again, as far as it is there.
func (b *area) remove(ctx context.Context) error {
	defer brokers.CloseIdle(b.client)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs := []error{b.dropSlot(ctx, relay.ReplicationConfig(b.cfg))}
	errs = append(errs, b.exec(ctx, "DROP PUBLICATION IF EXISTS "+b.name, "DROP SCHEMA IF EXISTS "+b.name+" CASCADE"))
	answer, err := b.client.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{b.topic}})
	if err == nil {
		err = answer.Errors[b.topic]
	}
	if err != nil && !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		errs = append(errs, fmt.Errorf("delete topic %s: %w", b.topic, err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what bench made (schema, slot and publication %s, topic %s): %w", b.name, b.topic, err)
	}
	return nil
}

// dropSlot drops a slot if it exists, once no one uses it.
func (b *area) dropSlot(ctx context.Context, c replication.Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var exists bool
	if err := b.ask(ctx, &exists, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)",
		c.Slot); err != nil || !exists {
		return err
	}
	return replication.DropSlotWhenFree(ctx, c)
}

// ask scans one value.
func (b *area) ask(ctx context.Context, into any, query string, args ...any) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(b.cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := conn.QueryRow(ctx, query, args...).Scan(into); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// relay runs the relay in this process until the function that it returns is called, which gives its error.
func (b *area) relay(ctx context.Context) (r *relay.Relay, end func() error, err error) {
	r, err = brokers.Relay(b.cfg, b.o.Logger, io.Discard, relay.WithLogger(b.o.Logger), relay.WithVersion(b.o.Version))
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	end = func() error { stop(); return <-ended }
	if err := b.poll(ctx, "the relay streams", func() bool { return r.Status().Role == relay.RoleActive }); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return r, end, nil
}

// poll waits until something is so.
func (b *area) poll(ctx context.Context, what string, so func() bool) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for !so() {
		select {
		case <-ticker.C:
		case <-over.C:
			return fmt.Errorf("%v passed, and still not: %s", patience, what)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}
