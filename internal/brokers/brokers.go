package brokers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/nats"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
)

// NATS makes the driver for JetStream.
func NATS(cfg config.Config, log zerolog.Logger) (*nats.Driver, error) {
	n := cfg.NATS
	return nats.New(nats.Config{
		URL: n.URL, Name: cfg.Service, Stream: n.Stream,
		CredentialsFile: n.CredentialsFile, Username: n.Username, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile,
		NKeyFile: n.NKeyFile, TLS: files(n.TLS, "server", "nats.tls", "nats.url"),
		NewStreams: nats.NewStreams{Create: n.CreateStreams.Enabled, Replicas: n.CreateStreams.Replicas},
		Hooks: nats.Hooks{
			StreamCreated: func(stream, subject string) {
				log.Info().Str("stream", stream).Str("subject", subject).Msg("stream created, or subject added to it")
			},
			OneByOne: func(stream string, replicas int) {
				log.Warn().Str("stream", stream).Int("replicas", replicas).
					Msg("the stream is replicated and takes no atomic batches, so events go to it one by one, some thousand a " +
						"second at most; set allow_atomic in its configuration (nats-server 2.12 and later)")
			},
			Alarm: alarm(log),
		},
	})
}

// RedisStream makes the driver for Redis Streams.
func RedisStream(cfg config.Config, log zerolog.Logger) (*redis.Streams, error) {
	r := cfg.Redis
	return redis.NewStreams(redis.StreamsConfig{
		URL: r.URL, PasswordFile: r.PasswordFile, Sentinel: sentinel(cfg), Cluster: r.Cluster.Enabled, TLS: redisFiles(cfg),
		MaxLength: int64(r.MaxLength), MinReplicas: r.MinReplicas,
		Hooks: redis.Hooks{Alarm: alarm(log)},
	})
}

func sentinel(cfg config.Config) redisconn.Sentinel {
	s := cfg.Redis.Sentinel
	return redisconn.Sentinel{Master: s.Master, Username: s.Username, PasswordFile: s.PasswordFile}
}

func redisFiles(cfg config.Config) certs.Files {
	return files(cfg.Redis.TLS, "server", "redis.tls", "redis.url")
}

// files are a section of certificates beside a URL, and what errors call them.
func files(c config.CertFiles, server, section, url string) certs.Files {
	return certs.Files{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Names: certs.ByURL(server, section, url)}
}

// BullMQ makes the driver for queues of BullMQ or Bull.
func BullMQ(cfg config.Config, log zerolog.Logger) (*redis.BullMQ, error) {
	b := cfg.BullMQ
	options, err := jobOptions(b)
	if err != nil {
		return nil, err
	}
	named := headersFor(cfg)
	return redis.NewBullMQ(redis.BullMQConfig{
		URL: cfg.Redis.URL, PasswordFile: cfg.Redis.PasswordFile, Sentinel: sentinel(cfg),
		Cluster: cfg.Redis.Cluster.Enabled, TLS: redisFiles(cfg), Library: libraryOf(b), Prefix: b.Prefix,
		JobName: named.Replace(b.JobName), JobID: named.Replace(b.JobID), Event: jobEvent(cfg),
		Options:  options,
		IDHeader: cfg.Message.HeaderNames()[0], Unrecorded: cfg.Limits.MaxUnrecorded, MinReplicas: cfg.Redis.MinReplicas,
		Hooks: redis.Hooks{Alarm: alarm(log)},
	})
}

// jobOptions returns the options of each job.
func jobOptions(b config.BullMQ) (redis.JobOptions, error) {
	keep := func(r config.Remove) redis.JobKeep {
		return redis.JobKeep{Remove: r.Enabled, Count: r.Count, Age: r.Age.Std()}
	}
	o := redis.JobOptions{
		Attempts: b.Attempts, RemoveOnComplete: keep(b.RemoveOnComplete), RemoveOnFail: keep(b.RemoveOnFail),
	}
	if b.Backoff == "" {
		return o, nil
	}
	kind, pause, _ := strings.Cut(b.Backoff, " ")
	delay, err := config.ParseDuration(pause)
	if err != nil {
		return o, fmt.Errorf("read bullmq.backoff: %w", err)
	}
	o.BackoffType, o.BackoffDelay = kind, delay.Std()
	return o, nil
}

// headersFor makes of a template with columns one with the headers that hold them.
func headersFor(cfg config.Config) *strings.Replacer {
	names := cfg.Message.HeaderNames()
	columns := []string{}
	for i, column := range config.StandardHeaders {
		columns = append(columns, "{"+column+"}", "{"+names[i]+"}")
	}
	return strings.NewReplacer(columns...)
}

// RabbitMQ makes the driver for exchanges.
func RabbitMQ(cfg config.Config, log zerolog.Logger) (*rabbitmq.Driver, error) {
	r := cfg.RabbitMQ
	names := cfg.Message.HeaderNames()
	c := rabbitmq.Config{
		URL: r.URL, PasswordFile: r.PasswordFile, Name: cfg.Service, IDHeader: names[0], TypeHeader: names[1],
		Exchanges: writtenTo(cfg), RoutingKey: headersFor(cfg).Replace(r.RoutingKey),
		TLS: files(r.TLS, "server", "rabbitmq.tls", "rabbitmq.url"),
	}
	c.QueueSeen = func(queue string, there bool) {
		if there {
			log.Info().Str("queue", queue).Msg("the queue is there again")
			return
		}
		log.Warn().Str("queue", queue).
			Msg("a queue of rabbitmq.consumers is missing; cdc-relay init --rabbitmq-topology creates it")
	}
	topics, err := TopicsOf(cfg.Message.Topic)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Consumers)) {
		one := r.Consumers[name]
		consumer := rabbitmq.Consumer{Name: name, DeadLetters: config.DeadLetterQueue(name), Bind: one.Bind,
			Exchanges: one.Exchanges, SingleActive: one.SingleActive}
		if len(one.Exchanges) == 0 {
			consumer.Exchanges = []string{topics.Exact}
		}
		for _, pause := range one.Retry {
			retry := rabbitmq.Retry{Queue: config.RetryQueue(name, pause), Pause: pause.Std()}
			consumer.Retries = append(consumer.Retries, retry)
		}
		c.Consumers = append(c.Consumers, consumer)
	}
	return rabbitmq.New(c)
}

// RabbitMQStream makes the driver for RabbitMQ's streams.
func RabbitMQStream(cfg config.Config, log zerolog.Logger) (*rabbitmq.StreamDriver, error) {
	r := cfg.RabbitStream
	names := cfg.Message.HeaderNames()
	c := rabbitmq.StreamConfig{
		URL: cfg.RabbitMQ.StreamURL, PasswordFile: cfg.RabbitMQ.PasswordFile, Name: cfg.Service,
		IDHeader: names[0], TypeHeader: names[1], Streams: writtenTo(cfg),
		MissingStreams: rabbitmq.MissingStreams{
			Create: r.CreateStreams.Enabled, MaxBytes: int64(r.CreateStreams.MaxBytes), MaxAge: r.CreateStreams.MaxAge.Std(),
		},
		TLS: files(r.TLS, "server", "rabbitmq_stream.tls", "rabbitmq.stream_url"),
		Hooks: rabbitmq.StreamHooks{
			StreamCreated: func(stream string) { log.Info().Str("stream", stream).Msg("stream created") },
			Alarm:         alarm(log),
		},
	}
	return rabbitmq.NewStream(c)
}

// Webhook makes the driver for HTTP endpoints.
func Webhook(cfg config.Config) (*webhook.Driver, error) {
	w := cfg.Webhook
	return webhook.New(webhook.Config{
		URL: w.URL, Endpoints: w.Endpoints, Secret: w.Secret, SecretFile: w.SecretFile, Lanes: w.Lanes,
		Timeout: w.Timeout.Std(), Faults: w.EventFaults, Retried: w.RetryFaults, ContentType: w.ContentType,
		IDHeader: cfg.Message.HeaderNames()[0], UserAgent: cfg.Service,
		TLS: files(w.TLS, "endpoint", "webhook.tls", "webhook.url"),
	})
}

// alarm logs what a driver noticed at its broker and a person must look at.
func alarm(log zerolog.Logger) func(sink.Alarm) {
	return func(a sink.Alarm) {
		log.Error().Str("alarm", a.Kind).Str("topic", a.Topic).Int32("partition", a.Partition).Msg(a.Text)
	}
}

// Browser makes the driver of a sink other than Kafka to read its topics with. Close it at the end.
func Browser(cfg config.Config) (sink.Browser, error) {
	d, err := New(cfg, zerolog.Nop(), io.Discard)
	if err != nil {
		return nil, err
	}
	b, can := d.(sink.Browser)
	if !can {
		return nil, errors.Join(fmt.Errorf("the topics of the sink %s cannot be read", cfg.Sink), d.Close())
	}
	return b, nil
}

// examinedMost bounds the topics of rows that are examined: each costs a connection.
const examinedMost = 20

// examineEach examines topics one after another. What is found of several alike is said once.
func examineEach(ctx context.Context, examine func(context.Context, string) (string, bool, error),
	names []string) (text string, risky bool, err error) {
	var texts []string
	var problems []error
	for _, name := range names {
		said, warns, err := examine(ctx, name)
		if err != nil {
			problems = append(problems, err)
			if ctx.Err() != nil || len(names) == 1 {
				break
			}
			continue
		}
		risky = risky || warns
		if !slices.Contains(texts, said) {
			texts = append(texts, said)
		}
	}
	return strings.Join(texts, "; "), risky, errors.Join(problems...)
}

// Examine asks the servers of a sink other than Kafka whether they can be used, for check, and where message.topic
// depends on the row, also whether the topics that rows choose can. The text says what was found; risky, that something
// in it is a warning.
func Examine(ctx context.Context, cfg config.Config, chosen []string) (text string, risky bool, err error) {
	if cfg.Sink == config.SinkKafka || cfg.Sink == config.SinkStdout {
		return "", false, nil
	}
	topics, err := TopicsOf(cfg.Message.Topic)
	if err != nil {
		return "", false, err
	}
	driver, err := New(cfg, zerolog.Nop(), io.Discard)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = driver.Close() }()
	d, can := driver.(interface {
		Examine(context.Context, string) (string, bool, error)
	})
	if !can {
		return "", false, fmt.Errorf("sink %s cannot be examined", cfg.Sink)
	}
	names := []string{topics.Exact}
	if topics.Exact == "" {
		names = append(names, chosen[:min(len(chosen), examinedMost)]...)
	}
	return examineEach(ctx, d.Examine, names)
}
