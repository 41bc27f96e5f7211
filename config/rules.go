package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// rule defines the values that a key allows. check returns "" for an allowed value, [notAllowed], or what exactly is
// wrong.
type rule struct {
	allowed string
	check   func(value any) string
	values  []string                  // all that are allowed; nil: too many for a list
	read    func(value string) string // what an allowed text stands for; nil: itself
}

// notAllowed is the complaint when allowed already says it all.
const notAllowed = "not allowed"

// The bounds. Upper bounds are there to catch a wrong unit, not to forbid a use.
const (
	day           = Duration(24 * time.Hour)
	longest       = 3650 * day
	maxPool       = 200
	maxEvents     = 100_000_000
	maxIdentifier = 63 // bytes; NAMEDATALEN - 1 of Postgres
	maxTopic      = 249
	maxText       = 249 // of names that we choose: service, client id
)

// rules has a line for every key; a test holds it against [Keys]. Values that this version does not act on yet are
// named as such and not allowed.
var rules = joined(awsRules(), map[string]rule{
	"service": label(),

	// A command that needs it says so.
	"postgres.url":                {allowed: connection().allowed, check: optional(connection()).check},
	"postgres.replication_url":    optional(connection()),
	"postgres.password_file":      filePath(),
	"postgres.password_command":   program(),
	"postgres.slot":               matching(`^[a-z0-9_]+$`, maxIdentifier, "1 to 63 of a-z, 0-9 and _"),
	"postgres.publication":        identifier(),
	"postgres.schema":             identifier(),
	"postgres.status_interval":    durations(Duration(10*time.Millisecond), Duration(time.Hour)),
	"postgres.wal_sender_timeout": durations(Duration(time.Second), day),
	"postgres.pool_size":          count(1, maxPool),
	"postgres.on_slot_lost":       oneOf(SlotLostRecover, SlotLostHalt),
	"postgres.allow_second_slot":  boolean(),

	"outbox.table":                  table(),
	"outbox.tables":                 optional(tables()),
	"outbox.columns.id":             identifier(),
	"outbox.columns.aggregate_type": aggregateColumn(),
	"outbox.columns.aggregate_id":   aggregateColumn(),
	"outbox.columns.event_type":     identifier(),
	"outbox.columns.payload":        identifier(),
	"outbox.columns.headers":        optional(identifier()),
	"outbox.columns.created_at":     optional(identifier()),
	"outbox.after_publish":          oneOf(AfterPublishMark, AfterPublishKeep, AfterPublishDelete),
	"outbox.mark_set":               sql("a SET list such as processed = true, processed_at = now()"),
	"outbox.dead_set":               failureSet(),
	"outbox.retry_set":              failureSet(),
	"outbox.published_when":         sql("an SQL condition such as processed"),
	"outbox.time_zone":              optional(timeZone()),
	"outbox.order_by":               optional(columnList()),
	"outbox.catch_up":               boolean(),
	"outbox.catch_up_max":           count(0, 1<<40),
	"outbox.retention":              durations(0, longest),
	"journal.retention":             durations(0, longest),

	"sink": oneOf(SinkKafka, SinkNATS, SinkRedisStream, SinkBullMQ, SinkRabbitMQ, SinkRabbitMQStream, SinkWebhook,
		SinkSQS, SinkSNS, SinkEventBridge, SinkStdout),

	"message.topic": topicTemplate(),
	"message.key":   keyTemplate(),
	"message.format": oneOf(FormatPlain, FormatEnvelope, FormatCloudEvents, FormatAvro, FormatProtobuf,
		FormatJSONSchema),
	"message.timestamp": oneOf(TimestampPublish, TimestampCreatedAt),
	"message.headers":   headerNames(),
	"message.schemas":   directory(),

	"kafka.brokers":     brokers(),
	"kafka.client_id":   label(),
	"kafka.partitioner": oneOf(PartitionerMurmur2),
	"kafka.compression": oneOf(CompressionNone, CompressionSnappy, CompressionLZ4, CompressionZstd,
		CompressionGzip),
	"kafka.linger":                           durations(0, Duration(10*time.Second)),
	"kafka.max_batch_bytes":                  sizes(1<<10, 1<<30),
	"kafka.request_timeout":                  durations(Duration(100*time.Millisecond), Duration(10*time.Minute)),
	"kafka.dial_timeout":                     durations(Duration(10*time.Millisecond), Duration(10*time.Minute)),
	"kafka.partition_patience":               durations(0, day),
	"kafka.create_topics.enabled":            boolean(),
	"kafka.create_topics.partitions":         count(1, 100_000),
	"kafka.create_topics.replication_factor": count(1, 100),
	"kafka.tls.enabled":                      boolean(),
	"kafka.tls.ca_file":                      filePath(),
	"kafka.tls.cert_file":                    filePath(),
	"kafka.tls.key_file":                     filePath(),
	"kafka.tls.server_name":                  optional(label()),
	"kafka.sasl.mechanism":                   optional(oneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAuthBearer)),
	"kafka.sasl.username":                    optional(label()),
	"kafka.sasl.password_file":               filePath(),
	"kafka.sasl.password_command":            program(),
	"kafka.sasl.token_file":                  filePath(),
	"kafka.sasl.token_command":               program(),
	"kafka.sasl.aws_region":                  optional(matching(`^[a-z0-9-]+$`, 40, "a region such as eu-west-1")),
	"kafka.sasl.oauth.token_url":             tokenEndpoint(),
	"kafka.sasl.oauth.client_id":             optional(label()),
	"kafka.sasl.oauth.client_secret_file":    filePath(),
	"kafka.sasl.oauth.scope":                 optional(label()),
	"kafka.sasl.oauth.parameters":            tokenParameters(),
	"kafka.sasl.oauth.ca_file":               filePath(),
	"kafka.sasl.extensions":                  extensions(),

	"nats.url": serverURLs("nats.password_file", "nats", "tls", "ws", "wss"),
	"nats.stream": optional(matching(`^[^\s.*>/\\\x00-\x1f\x7f]+$`, 255,
		"a stream's name: no spaces, '.', '*', '>' or slashes")),
	"nats.credentials_file":        filePath(),
	"nats.nkey_file":               filePath(),
	"nats.username":                optional(label()),
	"nats.password_file":           filePath(),
	"nats.token_file":              filePath(),
	"nats.create_streams.enabled":  boolean(),
	"nats.create_streams.replicas": count(1, 5),
	"nats.tls.ca_file":             filePath(),
	"nats.tls.cert_file":           filePath(),
	"nats.tls.key_file":            filePath(),
	"redis.url":                    serverURLs("redis.password_file", "redis", "rediss"),
	"redis.password_file":          filePath(),
	"redis.max_length":             count(0, 1<<40),
	"redis.min_replicas":           count(0, 100),
	"redis.sentinel.master":        optional(matching(`^[A-Za-z0-9._-]+$`, 255, "a name of a-z, A-Z, 0-9 and ._-")),
	"redis.sentinel.username":      optional(label()),
	"redis.sentinel.password_file": filePath(),
	"redis.cluster.enabled":        boolean(),
	"redis.tls.ca_file":            filePath(), "redis.tls.cert_file": filePath(), "redis.tls.key_file": filePath(),

	"bullmq.version":  count(4, 6),
	"bullmq.prefix":   matching(`^[A-Za-z0-9_.:{}-]+$`, 100, "a-z, A-Z, 0-9 and _.:{}-, at most 100"),
	"bullmq.job_name": routingKey(),
	"bullmq.job_id":   routingKey(),
	"bullmq.data":     oneOf(BullMQEvent, BullMQPayload),
	"bullmq.attempts": count(1, 1_000_000),
	"bullmq.backoff": optional(matching(`^\S+ \d+(ms|s|m|h)$`, maxText,
		"a word and a pause in ms, s, m or h, such as exponential 1s")),
	"bullmq.remove_on_complete.enabled": boolean(),
	"bullmq.remove_on_complete.count":   count(0, 1<<40),
	"bullmq.remove_on_complete.age":     durations(0, longest),
	"bullmq.remove_on_fail.enabled":     boolean(),
	"bullmq.remove_on_fail.count":       count(0, 1<<40),
	"bullmq.remove_on_fail.age":         durations(0, longest),

	"rabbitmq.url":           serverURLs("rabbitmq.password_file", "amqp", "amqps"),
	"rabbitmq.password_file": filePath(),
	"rabbitmq.routing_key":   routingKey(),
	"rabbitmq.stream_url":    serverURLs("rabbitmq.password_file", "rabbitmq-stream", "rabbitmq-stream+tls"),
	"rabbitmq.tls.ca_file":   filePath(), "rabbitmq.tls.cert_file": filePath(), "rabbitmq.tls.key_file": filePath(),

	"rabbitmq.consumers": consumers(),

	"rabbitmq_stream.create_streams.enabled":   boolean(),
	"rabbitmq_stream.create_streams.max_bytes": sizes(0, 1<<50),
	"rabbitmq_stream.create_streams.max_age":   durations(0, longest),
	"rabbitmq_stream.tls.ca_file":              filePath(),
	"rabbitmq_stream.tls.cert_file":            filePath(),
	"rabbitmq_stream.tls.key_file":             filePath(),

	"webhook.url":           optional(endpoint()),
	"webhook.endpoints":     endpoints(),
	"webhook.secret":        secrets(),
	"webhook.secret_file":   filePath(),
	"webhook.lanes":         count(1, 1024),
	"webhook.timeout":       durations(Duration(100*time.Millisecond), Duration(10*time.Minute)),
	"webhook.event_faults":  statuses(),
	"webhook.retry_faults":  statuses(),
	"webhook.content_type":  optional(label()),
	"webhook.tls.ca_file":   filePath(),
	"webhook.tls.cert_file": filePath(),
	"webhook.tls.key_file":  filePath(),

	"registry.url":              optional(serverURLs("registry.password_file", "http", "https")),
	"registry.username":         optional(label()),
	"registry.password_file":    filePath(),
	"registry.password_command": program(),
	"registry.token_file":       filePath(),
	"registry.token_command":    program(),
	"registry.tls.ca_file":      filePath(),
	"registry.tls.cert_file":    filePath(),
	"registry.tls.key_file":     filePath(),
	"registry.subject": subjectTemplate("text with {topic} and columns of the row in braces, such as {topic}-value or " +
		"com.shop.{event_type}"),
	"registry.record":        subjectTemplate("text with columns of the row in braces, or empty"),
	"registry.version":       matching("^(latest|[1-9][0-9]{0,8})$", 9, "latest, or a number from 1"),
	"registry.files":         directory(),
	"registry.auto_register": boolean(),
	"registry.cache_ttl":     durations(Duration(time.Second), longest),
	"registry.timeout":       durations(Duration(100*time.Millisecond), Duration(10*time.Minute)),

	"retry.max_attempts":    count(1, 1_000_000),
	"retry.initial_backoff": durations(Duration(time.Millisecond), day),
	"retry.max_backoff":     durations(Duration(time.Millisecond), 30*day),
	"retry.jitter":          shares(),
	"retry.schedule":        schedule(),
	"retry.on_dead":         oneOf(OnDeadContinue, OnDeadHold),

	"dlq.table":          optional(table()),
	"dlq.topic":          copyTopics(),
	"dlq.breaker.count":  count(0, maxEvents),
	"dlq.breaker.ratio":  shares(),
	"dlq.breaker.window": durations(Duration(time.Second), day),

	"dlq.breaker.count_invalid": boolean(),

	"dlq.retention": durations(0, longest),

	"limits.in_flight_events": count(1, maxEvents),
	"limits.in_flight_bytes":  sizes(1<<10, 1<<40),
	"limits.max_unrecorded":   count(1, maxEvents),
	"limits.max_event_bytes":  sizes(0, 1<<30),
	"limits.topics":           count(1, maxEvents),
	"limits.parked_events":    count(0, maxEvents),

	"reconcile.interval": durations(Duration(time.Second), day),
	"drift.interval":     durations(Duration(time.Second), day),
	"wal.budget":         sizes(0, 1<<50),
	"latency_target":     durations(0, Duration(100*time.Millisecond)),
	"shutdown_grace":     durations(0, Duration(time.Hour)),
	"on_halt":            oneOf(OnHaltStay, OnHaltExit),

	"inbox.url":           optional(connection()),
	"inbox.password_file": filePath(),
	"inbox.schema":        identifier(),

	"http.listen":        listenAddress(),
	"http.token_file":    filePath(),
	"http.read":          optional(oneOf(ReadOpen, ReadToken)),
	"http.show_payloads": boolean(),
	"metrics.aliases":    boolean(),
	"log.level":          oneOf("trace", "debug", "info", "warn", "error"),
	"log.format":         oneOf(LogJSON, LogConsole),

	"tracing.endpoint":     spanEndpoint(),
	"tracing.sample_ratio": shares(),
})

// relation is a rule about several keys. It is not checked when one of them already breaks its own rule.
type relation struct {
	keys    []string // the first one is blamed
	allowed string
	check   func(*Config) string
}

var relations = slices.Concat(dryRuns, logins, secured, redisServers, webhooks, registries, aggregateless,
	failuresUndone, severalOutboxes, more)

var more = []relation{
	{
		keys:    []string{"http.read", "http.token_file"},
		allowed: "token with http.token_file only",
		check: func(c *Config) string {
			if c.HTTP.Read == ReadToken && c.HTTP.TokenFile == "" {
				return "token without http.token_file"
			}
			return ""
		},
	},
	{
		// The server drops a stream that is silent for wal_sender_timeout, and asks for a sign of life only at its half.
		// A quarter leaves room for one status that is late.
		keys:    []string{"postgres.status_interval", "postgres.wal_sender_timeout"},
		allowed: "at most a quarter of postgres.wal_sender_timeout",
		check: func(c *Config) string {
			if c.Postgres.StatusInterval > c.Postgres.WALSenderTimeout/4 {
				return fmt.Sprintf("status_interval %s with wal_sender_timeout %s", c.Postgres.StatusInterval,
					c.Postgres.WALSenderTimeout)
			}
			return ""
		},
	},
	{
		keys:    []string{"retry.initial_backoff", "retry.max_backoff"},
		allowed: "at most retry.max_backoff",
		check: func(c *Config) string {
			if c.Retry.InitialBackoff > c.Retry.MaxBackoff {
				return fmt.Sprintf("initial_backoff %s with max_backoff %s", c.Retry.InitialBackoff, c.Retry.MaxBackoff)
			}
			return ""
		},
	},
	cloudEventHeaders,
	separateCopies,
	boundConsumers,
}

func oneOf(values ...string) rule {
	r := typed(strings.Join(values, ", "), func(v string) string { return accept(slices.Contains(values, v)) })
	r.values = values
	return r
}

// timeZone is a name that both this program and Postgres know.
func timeZone() rule {
	return typed("a name of the IANA time zone database such as America/Lima or UTC", func(v string) string {
		_, err := time.LoadLocation(v)
		return accept(err == nil && v != "Local")
	})
}

func boolean() rule { return typed("true, false", func(bool) string { return "" }) }

func count(least, most int) rule {
	return typed(fmt.Sprintf("a whole number from %d to %d", least, most), func(v int) string {
		return accept(v >= least && v <= most)
	})
}

func shares() rule {
	return typed("a number from 0 to 1", func(v float64) string { return accept(v >= 0 && v <= 1) })
}

func durations(least, most Duration) rule {
	allowed := fmt.Sprintf("a number with a unit (ms, s, m, h) from %s to %s", least, most)
	return typed(allowed, func(v Duration) string { return accept(v >= least && v <= most) })
}

func schedule() rule {
	return typed("a list of numbers with a unit, such as [1m, 5m, 15m]", func(v []Duration) string {
		return accept(!slices.ContainsFunc(v, func(d Duration) bool { return d < 0 || d > 30*day }))
	})
}

func sizes(least, most ByteSize) rule {
	allowed := fmt.Sprintf("a number of bytes, with or without a unit (KiB, MiB, GiB), from %s to %s", least, most)
	return typed(allowed, func(v ByteSize) string { return accept(v >= least && v <= most) })
}

// matching is for texts of at most so many characters that have a pattern. The bound is none of the pattern's: a
// counted repetition is written out when it is compiled, 300 kB for 249 characters.
func matching(pattern string, most int, allowed string) rule {
	re := regexp.MustCompile(pattern)
	return typed(allowed, func(v string) string {
		return accept(utf8.RuneCountInString(v) <= most && re.MatchString(v))
	})
}

// label is for names that go into metrics, logs and requests.
func label() rule {
	return matching(`^[^\x00-\x1f\x7f]+$`, maxText,
		fmt.Sprintf("1 to %d characters, no control characters", maxText))
}

func filePath() rule { return pathOf("file") }

// program is one to run without a shell, with its arguments.
func program() rule {
	return typed("a program and its arguments, no argument with a comma, or empty", func(v []string) string {
		return accept(!slices.ContainsFunc(v, func(word string) bool { return strings.Contains(word, "\x00") }))
	})
}

func directory() rule { return pathOf("directory") }

func pathOf(what string) rule {
	return typed("the path of a "+what+", or empty",
		func(v string) string { return accept(!strings.ContainsAny(v, "\x00\n")) })
}

// sql only refuses what cannot be sent; the server judges the rest when the statement is prepared.
func sql(allowed string) rule {
	return typed(allowed+", or empty", func(v string) string { return accept(!strings.Contains(v, "\x00")) })
}

func brokers() rule {
	return typed("a list of host:port", func(list []string) string {
		for _, b := range list {
			host, port, err := net.SplitHostPort(b)
			if err != nil || host == "" || !isPort(port, 1) {
				return fmt.Sprintf("%q is not host:port", b)
			}
		}
		return ""
	})
}

func listenAddress() rule {
	return typed("host:port, such as 127.0.0.1:9464 or :9464 for all addresses", func(v string) string {
		_, port, err := net.SplitHostPort(v)
		return accept(err == nil && isPort(port, 0))
	})
}
