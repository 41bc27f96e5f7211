package main

import (
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/stdout"
)

// kafkaConfig is the driver's part of the configuration.
func kafkaConfig(cfg config.Config) kafka.Config {
	k := cfg.Kafka
	compression, err := kafka.ParseCompression(k.Compression)
	if err != nil {
		panic(err) // the configuration allows what the driver has; a test holds them together
	}
	c := kafka.Config{
		Brokers: k.Brokers, ClientID: k.ClientID, Compression: compression, MaxBatchBytes: int(k.MaxBatchBytes),
		RequestTimeout: k.RequestTimeout.Std(), DialTimeout: k.DialTimeout.Std(),
		NewTopics: kafka.NewTopics{Create: k.CreateTopics.Enabled, Partitions: k.CreateTopics.Partitions, ReplicationFactor: k.CreateTopics.ReplicationFactor},
	}
	if t := k.TLS; t.Enabled {
		c.TLS = &kafka.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
	}
	if s := k.SASL; s.Mechanism != "" {
		c.SASL = &kafka.SASL{Mechanism: s.Mechanism, Username: s.Username, PasswordFile: s.PasswordFile}
	}
	return c
}

// newDriver makes the sink's driver; what is printed goes to standard output, beside the log on standard error.
func (a *app) newDriver(cfg config.Config) (sink.Driver, error) {
	if cfg.Sink == config.SinkStdout {
		return stdout.New(stdout.Config{Writer: beneath(a.out)}), nil // it writes again what could not be written
	}
	c := kafkaConfig(cfg)
	c.Hooks = hooks(a.logger(cfg))
	d, err := kafka.New(c)
	if err != nil {
		return nil, err
	}
	if names, err := topicsOf(cfg.Message.Topic); err == nil && names.exact != "" {
		_, _ = d.Partitions(names.exact) // learns the topic, or creates it, before the first event
	}
	return d, nil
}

// kafkaClients ask brokers and read topics the way that the driver connects. Close the client's idle connections at the end.
func kafkaClients(cfg config.Config) (*kafkago.Dialer, *kafkago.Client, error) {
	connect, err := kafka.Connector(kafkaConfig(cfg))
	if err != nil {
		return nil, nil, err
	}
	dialer := &kafkago.Dialer{ClientID: cfg.Kafka.ClientID, Timeout: cfg.Kafka.DialTimeout.Std(), DialFunc: connect}
	transport := &kafkago.Transport{ClientID: cfg.Kafka.ClientID, Dial: connect}
	return dialer, &kafkago.Client{Addr: kafkago.TCP(cfg.Kafka.Brokers...), Timeout: brokerPatience, Transport: transport}, nil
}

// hooks log what the driver does that a person should know later.
func hooks(log zerolog.Logger) kafka.Hooks {
	return kafka.Hooks{
		TopicCreated: func(topic string) { log.Info().Str("topic", topic).Msg("topic created") },
		ProducerReset: func(r kafka.Reset) {
			log.Warn().Str("topic", r.Topic).Int32("partition", r.Partition).Str("cause", r.Cause).Int("possible_duplicates", r.Uncertain).
				Msg("the producer id was given up for this partition")
		},
		Odd: func(o kafka.Odd) {
			log.Warn().Err(o.Err).Str("topic", o.Topic).Int32("partition", o.Partition).Int("tries", o.Tries).
				Msg("the broker gives an answer that no working broker gives; the batch is tried again, then narrowed to the event that it stumbles over")
		},
		Alarm: func(a sink.Alarm) {
			level := zerolog.ErrorLevel
			if a.Kind == sink.AlarmPartitionChanged {
				level = zerolog.WarnLevel
			}
			log.WithLevel(level).Str("alarm", a.Kind).Str("topic", a.Topic).Int32("partition", a.Partition).Msg(a.Text)
		},
	}
}

// topicNames is what a topic template can become, as far as it is known without a row.
type topicNames struct {
	exact  string // the only topic; empty when the template has columns
	prefix string // what all topics begin with
}

func topicsOf(template string) (topicNames, error) {
	parts, err := config.ParseTemplate(template)
	if err != nil {
		return topicNames{}, fmt.Errorf("read message.topic: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Column != "" {
			return topicNames{prefix: b.String()}, nil
		}
		b.WriteString(p.Literal)
	}
	return topicNames{exact: b.String(), prefix: b.String()}, nil
}

// matches says whether a topic of the cluster can be one of ours. Names that begin with __ never are.
func (t topicNames) matches(name string) bool {
	if t.exact != "" {
		return name == t.exact
	}
	return strings.HasPrefix(name, t.prefix) && !strings.HasPrefix(name, "__")
}
