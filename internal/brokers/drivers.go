// Package brokers makes the sink that a configuration names: it knows the configuration and every kind of broker, so
// that nothing above needs to. It connects to nothing by itself: drivers connect when they are used.
package brokers

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/stdout"
)

// questionPatience bounds one question to one broker.
const questionPatience = 10 * time.Second

// New makes the driver of the sink that the configuration names. What the driver does that a person should know later
// goes to the log; messages of the sink stdout go to out.
func New(cfg config.Config, log zerolog.Logger, out io.Writer) (sink.Driver, error) {
	switch cfg.Sink {
	case config.SinkNATS:
		return NATS(cfg, log)
	case config.SinkRedisStream:
		return RedisStream(cfg, log)
	case config.SinkBullMQ:
		return BullMQ(cfg, log)
	case config.SinkRabbitMQ:
		return RabbitMQ(cfg, log)
	case config.SinkRabbitMQStream:
		return RabbitMQStream(cfg, log)
	case config.SinkWebhook:
		return Webhook(cfg)
	case config.SinkSQS:
		return SQS(cfg, log)
	case config.SinkSNS:
		return SNS(cfg, log)
	case config.SinkEventBridge:
		return EventBridge(cfg, log)
	case config.SinkStdout:
		return stdout.New(stdout.Config{Writer: out}), nil
	}
	c := Kafka(cfg)
	c.Hooks = hooks(log)
	d, err := kafka.New(c)
	if err != nil {
		return nil, err
	}
	if topics, err := TopicsOf(cfg.Message.Topic); err == nil && topics.Exact != "" {
		_, _ = d.Partitions(topics.Exact) // learns the topic, or creates it, before the first event
	}
	return d, nil
}

// Kafka is the Kafka driver's part of the configuration.
func Kafka(cfg config.Config) kafka.Config {
	k := cfg.Kafka
	compression, err := kafka.ParseCompression(k.Compression)
	if err != nil {
		panic(err) // the configuration allows what the driver has; a test holds them together
	}
	c := kafka.Config{
		Brokers: k.Brokers, ClientID: k.ClientID, Compression: compression, MaxBatchBytes: int(k.MaxBatchBytes),
		RequestTimeout: k.RequestTimeout.Std(), DialTimeout: k.DialTimeout.Std(),
		NewTopics: kafka.NewTopics{Create: k.CreateTopics.Enabled, Partitions: k.CreateTopics.Partitions,
			ReplicationFactor: k.CreateTopics.ReplicationFactor},
	}
	if t := k.TLS; t.Enabled {
		c.TLS = &kafka.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
	}
	if s := k.SASL; s.Mechanism != "" {
		c.SASL = &kafka.SASL{Mechanism: s.Mechanism, Username: s.Username, PasswordFile: s.PasswordFile,
			PasswordCommand: s.PasswordCommand, TokenFile: s.TokenFile, TokenCommand: s.TokenCommand, AWSRegion: s.AWSRegion,
			Sign: signMSK, Extensions: s.Extensions}
		if o := s.OAuth; o.TokenURL != "" {
			c.SASL.OAuth = &kafka.OAuth{TokenURL: o.TokenURL, ClientID: o.ClientID, SecretFile: o.ClientSecretFile,
				Scope: o.Scope, Parameters: o.Parameters, CAFile: o.CAFile}
		}
	}
	return c
}

// KafkaClients ask brokers and read topics over connections like the driver's. CloseIdle is for the client at the end.
func KafkaClients(cfg config.Config) (*kafkago.Dialer, *kafkago.Client, error) {
	connect, err := kafka.Connector(Kafka(cfg))
	if err != nil {
		return nil, nil, err
	}
	dialer := &kafkago.Dialer{ClientID: cfg.Kafka.ClientID, Timeout: cfg.Kafka.DialTimeout.Std(), DialFunc: connect}
	transport, err := kafka.Transporter(Kafka(cfg))
	if err != nil {
		return nil, nil, err
	}
	return dialer, &kafkago.Client{Addr: kafkago.TCP(cfg.Kafka.Brokers...), Timeout: questionPatience,
		Transport: transport}, nil
}

// CloseIdle gives up the connections of a client of KafkaClients that are not in use.
func CloseIdle(client *kafkago.Client) { client.Transport.(kafka.Transport).CloseIdleConnections() }

// hooks log what the driver does that a person should know later.
func hooks(log zerolog.Logger) kafka.Hooks {
	return kafka.Hooks{
		TopicCreated: func(topic string) { log.Info().Str("topic", topic).Msg("topic created") },
		ProducerReset: func(r kafka.Reset) {
			log.Warn().Str("topic", r.Topic).Int32("partition", r.Partition).Str("cause", r.Cause).Int("possible_duplicates",
				r.Uncertain).
				Msg("the producer id was replaced for this partition: no event is lost, possible_duplicates of them may be in " +
					"the topic twice")
		},
		Odd: func(o kafka.Odd) {
			log.Warn().Err(o.Err).Str("topic", o.Topic).Int32("partition", o.Partition).Int("tries", o.Tries).
				Msg("the broker gives an answer that no working broker gives; the batch is tried again, then narrowed to the " +
					"event that it stumbles over")
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

// Topics are the possible results of a topic template, as far as known without a row.
type Topics struct {
	Exact  string // the only topic; empty when the template has columns
	Prefix string // what all topics begin with
}

// TopicsOf reads a template of message.topic.
func TopicsOf(template string) (Topics, error) {
	parts, err := config.ParseTemplate(template)
	if err != nil {
		return Topics{}, fmt.Errorf("read message.topic: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Column != "" {
			return Topics{Prefix: b.String()}, nil
		}
		b.WriteString(p.Literal)
	}
	return Topics{Exact: b.String(), Prefix: b.String()}, nil
}

// Matches reports whether a topic of the cluster can be one of ours. Names that begin with __ never are.
func (t Topics) Matches(name string) bool {
	if t.Exact != "" {
		return name == t.Exact
	}
	return strings.HasPrefix(name, t.Prefix) && !strings.HasPrefix(name, "__")
}

// writtenTo returns a regular expression of the names that events and copies of dead letters go to.
func writtenTo(cfg config.Config) string {
	var names []string
	for _, template := range []string{cfg.Message.Topic, cfg.DLQ.Topic} {
		parts, err := config.ParseTemplate(strings.ReplaceAll(template, "{"+config.EventTopic+"}", cfg.Message.Topic))
		if template == "" || err != nil {
			continue
		}
		var name strings.Builder
		for _, p := range parts {
			if p.Column != "" {
				name.WriteString(".*")
			}
			name.WriteString(regexp.QuoteMeta(p.Literal))
		}
		names = append(names, name.String())
	}
	if len(names) == 1 {
		return "^" + names[0] + "$"
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
