package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NATS is the servers of JetStream and how to talk to them.
type NATS struct {
	URL             string        `key:"url" help:"nats://host:port or tls://host:port, several with commas"`
	Stream          string        `key:"stream" help:"the stream of all subjects; empty: the one that takes the subject"`
	CredentialsFile string        `key:"credentials_file" help:"file with JWT and seed, read again at each connect"`
	NKeyFile        string        `key:"nkey_file" help:"file with the seed of an nkey, read again at each connect"`
	Username        string        `key:"username" help:"user name"`
	PasswordFile    string        `key:"password_file" help:"file with the password, read again at each connect"`
	TokenFile       string        `key:"token_file" help:"file with a token instead of user and password, read again at each connect"`
	CreateStreams   CreateStreams `key:"create_streams"`
	TLS             CertFiles     `key:"tls"`
}

// CreateStreams configures whether and how missing streams are created.
type CreateStreams struct {
	Enabled  bool `key:"enabled" help:"create missing streams; false: their events wait"`
	Replicas int  `key:"replicas" help:"replicas of a created stream"`
}

// CertFiles secures connections to a broker whose URL wants TLS. The files are read again at each connect.
type CertFiles struct {
	CAFile   string `key:"ca_file" help:"PEM file of the authorities to trust, read again at each connect; empty: the system's"`
	CertFile string `key:"cert_file" help:"PEM file of the client certificate, read again at each connect"`
	KeyFile  string `key:"key_file" help:"PEM file of the client certificate's key"`
}

// Redis is the server of Redis Streams and of BullMQ's queues.
type Redis struct {
	URL          string    `key:"url" help:"redis://user@host:port/database, rediss:// for TLS; several with commas: Sentinels or cluster nodes"`
	PasswordFile string    `key:"password_file" help:"file with the password, read again at each connect"`
	MaxLength    int       `key:"max_length" help:"trim streams to about so many entries; 0: never; not for queues"`
	MinReplicas  int       `key:"min_replicas" help:"replicas that must have an event (WAIT); 0: a failover can lose it"`
	Sentinel     Sentinel  `key:"sentinel"`
	Cluster      Cluster   `key:"cluster"`
	TLS          CertFiles `key:"tls"`
}

// Cluster configures a Redis cluster.
type Cluster struct {
	Enabled bool `key:"enabled" help:"redis.url names nodes of a cluster"`
}

// Sentinel is who knows the master of Redis.
type Sentinel struct {
	Master       string `key:"master" help:"the Sentinels' name of the master; empty: redis.url is Redis itself"`
	Username     string `key:"username" help:"user name at the Sentinels; the one in redis.url is Redis' own"`
	PasswordFile string `key:"password_file" help:"file with the Sentinels' password, read again at each connect; redis.password_file is Redis' own"`
}

// redisServers refuse several servers without a known master, and keys that a cluster does not support.
var redisServers = []relation{
	{
		keys: []string{"redis.url", "redis.sentinel.master", "redis.cluster.enabled"},
		allowed: "one server; several are Sentinels, with redis.sentinel.master, or nodes, with redis.cluster.enabled, and " +
			"all of redis:// or all of rediss://",
		check: func(c *Config) string {
			urls := strings.Split(c.Redis.URL, ",")
			tls := strings.Count(c.Redis.URL, "rediss://")
			switch {
			case len(urls) > 1 && c.Redis.Sentinel.Master == "" && !c.Redis.Cluster.Enabled:
				return fmt.Sprintf("%d servers without redis.sentinel.master or redis.cluster.enabled", len(urls))
			case tls > 0 && tls < len(urls):
				return "both redis:// and rediss://"
			case c.Redis.Sentinel.Master != "" && c.Redis.Cluster.Enabled:
				return "both: a cluster has no Sentinels"
			}
			return ""
		},
	},
	{
		keys:    []string{"redis.url", "redis.cluster.enabled"},
		allowed: "database 0 with redis.cluster.enabled: a cluster has no other",
		check: func(c *Config) string {
			first, _, _ := strings.Cut(c.Redis.URL, ",")
			u, err := url.Parse(first)
			if c.Redis.Cluster.Enabled && err == nil && strings.Trim(u.Path, "/0") != "" {
				return "database " + strings.Trim(u.Path, "/")
			}
			return ""
		},
	},
	{
		keys: []string{"sink", "bullmq.prefix", "redis.cluster.enabled"},
		allowed: "with redis.cluster.enabled bullmq.prefix in braces, such as {bull}, for the workers too: all keys of a " +
			"queue in one slot",
		check: func(c *Config) string {
			_, tag, _ := strings.Cut(c.BullMQ.Prefix, "{")
			if end := strings.Index(tag, "}"); c.Sink == SinkBullMQ && c.Redis.Cluster.Enabled && end < 1 {
				return fmt.Sprintf("bullmq.prefix %q", c.BullMQ.Prefix)
			}
			return ""
		},
	},
}

// BullMQ configures queues and jobs of BullMQ or Bull. The server is configured by Redis.
type BullMQ struct {
	Version          int    `key:"version" help:"of the workers' library: 5 and 6 are BullMQ, also on one queue; 4 is Bull"`
	Prefix           string `key:"prefix" help:"prefix of the queues' keys, as the workers'; in a cluster in braces: {bull}"`
	JobName          string `key:"job_name" help:"name of a job; columns that are headers of the message in braces, and {key}, the message key"`
	JobID            string `key:"job_id" help:"id of a job, as job_name; different for each event of the queue; empty: one of the relay's own"`
	Data             string `key:"data" help:"data of a job; event: an object with metadata, payload and headers; payload: the payload, the rest in opts.outbox"`
	Attempts         int    `key:"attempts" help:"a worker's attempts, including the first"`
	Backoff          string `key:"backoff" help:"pause between attempts: fixed 5s; exponential 1s; or the workers' name of one, and a time; empty: none"`
	RemoveOnComplete Remove `key:"remove_on_complete"`
	RemoveOnFail     Remove `key:"remove_on_fail"`
}

// Remove says which jobs that have ended are removed.
type Remove struct {
	Enabled bool     `key:"enabled" help:"remove such jobs; false: they are kept, with their memory"`
	Count   int      `key:"count" help:"but keep so many, the youngest; 0 and age 0: none"`
	Age     Duration `key:"age" help:"but keep those that are younger, in whole seconds; 0: any age"`
}

// The values of bullmq.data.
const (
	BullMQEvent   = "event"
	BullMQPayload = "payload"
)

func defaultBullMQ() BullMQ {
	return BullMQ{Version: 5, Prefix: "bull", JobName: "{event_type}", JobID: "{id}", Data: BullMQEvent, Attempts: 1}
}

// RabbitMQ is the server, for exchanges and for streams, and how messages are routed.
type RabbitMQ struct {
	URL          string    `key:"url" help:"of sink rabbitmq: amqp://user@host:port/vhost, amqps:// for TLS; message.topic is the exchange"`
	PasswordFile string    `key:"password_file" help:"file with the password, read again at each connect"`
	RoutingKey   string    `key:"routing_key" help:"routing key; columns that are headers of the message in braces, and {key}, the message key"`
	StreamURL    string    `key:"stream_url" help:"of sink rabbitmq-stream: rabbitmq-stream://user@host:port/vhost, rabbitmq-stream+tls:// for TLS; message.topic is the stream"`
	TLS          CertFiles `key:"tls"`

	Consumers map[string]RabbitMQConsumer `key:"consumers" help:"consumers whose queues init --rabbitmq-topology creates, with bind (default #), retry (default 1m, 5m, 15m) and single_active"`
}

func defaultRabbitMQ() RabbitMQ {
	return RabbitMQ{URL: "amqp://guest@127.0.0.1:5672/", RoutingKey: "{aggregate_type}.{event_type}",
		StreamURL: "rabbitmq-stream://guest@127.0.0.1:5552/"}
}

// RabbitMQStream holds the keys of RabbitMQ's streams alone.
type RabbitMQStream struct {
	CreateStreams CreateRabbitMQStreams `key:"create_streams"`
	TLS           CertFiles             `key:"tls"`
}

// CreateRabbitMQStreams configures whether and how missing streams are created.
type CreateRabbitMQStreams struct {
	Enabled  bool     `key:"enabled" help:"create missing streams; false: their events wait"`
	MaxBytes ByteSize `key:"max_bytes" help:"the server drops the oldest part of a longer stream; 0: never"`
	MaxAge   Duration `key:"max_age" help:"the server drops what is older; 0s: never"`
}

// Webhook is the HTTP endpoints and how to speak to them.
type Webhook struct {
	URL         string            `key:"url" help:"https://host/path; events go to the path of their topic's name below it"`
	Endpoints   map[string]string `key:"endpoints" help:"URLs of topics that have one of their own: {orders: https://host/path}"`
	Secret      string            `key:"secret" help:"secrets that sign (whsec_… or whsk_…), with spaces between them; better in a file"`
	SecretFile  string            `key:"secret_file" help:"file with a secret per line, read every few seconds; {topic}: the topic; empty, without webhook.secret: unsigned"`
	Lanes       int               `key:"lanes" help:"concurrent requests per endpoint; one per key"`
	Timeout     Duration          `key:"timeout" help:"maximum time for one request, answer included"`
	EventFaults []int             `key:"event_faults" help:"answers that make the event a dead letter at once"`
	RetryFaults []int             `key:"retry_faults" help:"answers after which the event is retried by retry.*, then becomes a dead letter"`
	ContentType string            `key:"content_type" help:"default Content-Type"`
	TLS         CertFiles         `key:"tls"`
}

func defaultWebhook() Webhook {
	return Webhook{Lanes: 16, Timeout: Duration(15 * time.Second), EventFaults: []int{400, 413, 414, 415, 422, 431},
		ContentType: "application/json"}
}

const endpointAllowed = "https://host/path or http://host/path"

// isEndpoint reports whether the text is a URL that events can be posted to.
func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Fragment == ""
}

func endpoint() rule {
	return typed(endpointAllowed, func(v string) string { return accept(isEndpoint(v)) })
}

func endpoints() rule {
	return typed("topic: URL, such as {orders: https://host/path}", func(v map[string]string) string {
		for _, topic := range slices.Sorted(maps.Keys(v)) {
			if why := IllegalTopic(topic); why != "" {
				return fmt.Sprintf("the topic %q %s", topic, why)
			}
			if !isEndpoint(v[topic]) {
				return fmt.Sprintf("the URL of %s is not %s", topic, endpointAllowed)
			}
		}
		return ""
	})
}

// secrets looks at how they begin; the driver reads them.
func secrets() rule {
	return typed("secrets that begin with whsec_ or whsk_, with spaces between them, or empty", func(v string) string {
		return accept(!slices.ContainsFunc(strings.Fields(v), func(one string) bool {
			return !strings.HasPrefix(one, "whsec_") && !strings.HasPrefix(one, "whsk_")
		}))
	})
}

// statuses allows answers of HTTP that are no deliveries.
func statuses() rule {
	return typed("a list of numbers from 300 to 599, or empty", func(v []int) string {
		return accept(!slices.ContainsFunc(v, func(status int) bool { return status < 300 || status > 599 }))
	})
}

// webhooks are the rules about keys of sink webhook that depend on each other.
var webhooks = []relation{
	{
		keys:    []string{"webhook.url", "webhook.endpoints", "sink"},
		allowed: "with sink webhook, webhook.url or webhook.endpoints, or both",
		check: func(c *Config) string {
			if c.Sink == SinkWebhook && c.Webhook.URL == "" && len(c.Webhook.Endpoints) == 0 {
				return "neither"
			}
			return ""
		},
	},
	{
		keys:    []string{"webhook.secret", "webhook.secret_file"},
		allowed: "one of webhook.secret and webhook.secret_file",
		check: func(c *Config) string {
			if c.Webhook.Secret != "" && c.Webhook.SecretFile != "" {
				return "both"
			}
			return ""
		},
	},
}

// routingKey allows what a driver can fill in: columns that every message has as headers, and the key.
func routingKey() rule {
	const allowed = "text with {id}, {event_type}, {aggregate_type}, {created_at} and {key}, at most 255 long"
	return typed(allowed, func(v string) string {
		parts, err := ParseTemplate(v)
		if err != nil {
			return err.Error()
		}
		for _, p := range parts {
			if p.Column != "" && p.Column != "key" && !slices.Contains(StandardHeaders[:], p.Column) {
				return fmt.Sprintf("{%s} is not a header of every message", p.Column)
			}
		}
		return accept(len(v) <= maxRoutingKey)
	})
}

// maxRoutingKey is the longest routing key of AMQP, in bytes.
const maxRoutingKey = 255

// serverURLs allows URLs of the schemes, without a password that ends in the wrong place.
func serverURLs(file string, schemes ...string) rule {
	allowed := schemes[0] + "://host:port"
	if len(schemes) > 1 {
		allowed += ", also " + strings.Join(schemes[1:], ", ")
	}
	return typed(allowed, func(v string) string {
		for one := range strings.SplitSeq(v, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil {
				return fmt.Sprintf("it is not a URL (percent-encode special characters of the password, "+
					"or leave it out and use %s)", file)
			}
			if !slices.Contains(schemes, u.Scheme) || u.Host == "" {
				return notAllowed
			}
		}
		return ""
	})
}

func isPort(s string, least int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= least && n <= 65535
}
