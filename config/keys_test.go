package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Breaks it catches: a key without rule, help or default in the table; a rule left behind by a renamed key; a default
// that its own rule refuses; two keys whose variables or flags would be the same.
func TestEveryKeyIsComplete(t *testing.T) {
	env, flag := map[string]string{}, map[string]string{}
	for _, k := range Keys() {
		if k.Help == "" || k.Allowed == "" || strings.Contains(k.Name, "..") || strings.HasSuffix(k.Name, ".") {
			t.Errorf("key %q: got help %q, allowed %q; want all of them", k.Name, k.Help, k.Allowed)
		}
		if other, taken := env[k.Env]; taken {
			t.Errorf("keys %s and %s share the variable %s", k.Name, other, k.Env)
		}
		if other, taken := flag[k.Flag]; taken {
			t.Errorf("keys %s and %s share the flag --%s", k.Name, other, k.Flag)
		}
		env[k.Env], flag[k.Flag] = k.Name, k.Name
		value := reflect.ValueOf(Default()).FieldByIndex(k.index)
		if complaint := rules[k.Name].check(value.Interface()); complaint != "" && !value.IsZero() {
			t.Errorf("the default %v of %s is refused: %s", value, k.Name, complaint)
		}
	}
	for name := range rules {
		if _, found := findKey(name); !found {
			t.Errorf("there is a rule for %s, which is no key", name)
		}
	}
	for _, name := range notYet {
		if _, found := findKey(name); !found && !isSection(name) {
			t.Errorf("%s is listed as not available, but is no key", name)
		}
	}
}

// The names are a contract with users; this is their list, written down apart from the structs. Seen to fail with a key
// renamed.
func TestKeysAreTheDocumentedOnes(t *testing.T) {
	want := strings.Fields(`service
		postgres.url postgres.replication_url postgres.password_file postgres.password_command
		postgres.slot postgres.publication postgres.schema
		postgres.status_interval postgres.wal_sender_timeout postgres.pool_size postgres.on_slot_lost
		postgres.allow_second_slot
		outbox.table outbox.tables outbox.columns.id
		outbox.columns.aggregate_type outbox.columns.aggregate_id outbox.columns.event_type
		outbox.columns.payload outbox.columns.headers outbox.columns.created_at outbox.after_publish outbox.mark_set
		outbox.dead_set outbox.retry_set outbox.published_when outbox.time_zone outbox.order_by outbox.catch_up
 outbox.catch_up_max
		outbox.retention journal.retention sink
		message.topic message.key message.format message.timestamp message.headers message.schemas
		kafka.brokers kafka.client_id kafka.partitioner kafka.compression kafka.linger kafka.max_batch_bytes
		kafka.request_timeout kafka.dial_timeout kafka.partition_patience
		kafka.create_topics.enabled kafka.create_topics.partitions kafka.create_topics.replication_factor
		kafka.tls.enabled kafka.tls.ca_file kafka.tls.cert_file kafka.tls.key_file kafka.tls.server_name
		kafka.sasl.mechanism kafka.sasl.username kafka.sasl.password_file kafka.sasl.password_command
		kafka.sasl.token_file kafka.sasl.token_command kafka.sasl.aws_region
		kafka.sasl.oauth.token_url kafka.sasl.oauth.client_id
		kafka.sasl.oauth.client_secret_file kafka.sasl.oauth.scope kafka.sasl.oauth.parameters kafka.sasl.oauth.ca_file
		kafka.sasl.extensions
		nats.url nats.stream nats.credentials_file nats.nkey_file nats.username nats.password_file nats.token_file
		nats.create_streams.enabled nats.create_streams.replicas nats.tls.ca_file nats.tls.cert_file nats.tls.key_file
		redis.url redis.password_file redis.max_length redis.min_replicas
		redis.sentinel.master redis.sentinel.username redis.sentinel.password_file redis.cluster.enabled
		redis.tls.ca_file redis.tls.cert_file redis.tls.key_file
		bullmq.version bullmq.prefix bullmq.job_name bullmq.job_id bullmq.data bullmq.attempts
		bullmq.backoff
		bullmq.remove_on_complete.enabled bullmq.remove_on_complete.count bullmq.remove_on_complete.age
		bullmq.remove_on_fail.enabled bullmq.remove_on_fail.count bullmq.remove_on_fail.age
		rabbitmq.url rabbitmq.password_file rabbitmq.routing_key rabbitmq.stream_url
		rabbitmq.tls.ca_file rabbitmq.tls.cert_file rabbitmq.tls.key_file rabbitmq.consumers
		rabbitmq_stream.create_streams.enabled
		rabbitmq_stream.create_streams.max_bytes rabbitmq_stream.create_streams.max_age
		rabbitmq_stream.tls.ca_file rabbitmq_stream.tls.cert_file rabbitmq_stream.tls.key_file
		webhook.url webhook.endpoints webhook.secret webhook.secret_file webhook.lanes webhook.timeout
		webhook.event_faults webhook.retry_faults webhook.content_type
		webhook.tls.ca_file webhook.tls.cert_file webhook.tls.key_file
		sqs.region sqs.endpoint sqs.account sqs.standard sqs.create_queues.enabled sqs.max_message_bytes
		sqs.requests sqs.timeout
		sns.region sns.endpoint sns.account sns.standard sns.create_topics.enabled sns.requests sns.timeout
		eventbridge.region eventbridge.endpoint eventbridge.account eventbridge.source eventbridge.detail_type
		eventbridge.create_buses.enabled eventbridge.max_event_bytes eventbridge.requests eventbridge.timeout
		registry.url registry.username registry.password_file registry.password_command
		registry.token_file registry.token_command
		registry.tls.ca_file registry.tls.cert_file registry.tls.key_file
		registry.subject registry.record registry.version registry.files registry.auto_register
		registry.cache_ttl registry.timeout
		retry.max_attempts retry.initial_backoff retry.max_backoff retry.jitter retry.schedule retry.on_dead
		dlq.table dlq.topic dlq.breaker.count dlq.breaker.ratio dlq.breaker.window dlq.breaker.count_invalid dlq.retention
		limits.in_flight_events limits.in_flight_bytes limits.max_unrecorded limits.max_event_bytes
		limits.topics limits.parked_events
		reconcile.interval drift.interval wal.budget latency_target shutdown_grace on_halt
		inbox.url inbox.password_file inbox.schema
		http.listen http.token_file http.read http.show_payloads
		metrics.aliases log.level log.format
		tracing.endpoint tracing.sample_ratio`)
	var got []string
	for _, k := range Keys() {
		got = append(got, k.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	for key, name := range map[string]string{
		"postgres.replication_url":    "CDC_RELAY_POSTGRES_REPLICATION_URL",
		"outbox.columns.aggregate_id": "CDC_RELAY_OUTBOX_COLUMNS_AGGREGATE_ID",
		"shutdown_grace":              "CDC_RELAY_SHUTDOWN_GRACE",
	} {
		if k, _ := findKey(key); k.Env != name {
			t.Errorf("the variable of %s: got %s, want %s", key, k.Env, name)
		}
	}
}

// another is an allowed value that is not the key's default.
func another(t *testing.T, k Key) string {
	t.Helper()
	special := map[string]string{
		"latency_target":           "10ms",
		"postgres.url":             "postgres://app@db/app",
		"postgres.replication_url": "host=db user=relay dbname=app",
		"postgres.on_slot_lost":    SlotLostHalt,
		"outbox.after_publish":     AfterPublishKeep,
		"outbox.tables":            "tenant_*.outbox",
		"message.timestamp":        TimestampCreatedAt,
		"message.headers":          "id=x-event-id",
		"kafka.brokers":            "a:1,b:2",
		"kafka.compression":        CompressionZstd,
		"inbox.url":                "postgres://billing@db/billing",
		"nats.url":                 "tls://a:4222,tls://b:4222",
		"redis.url":                "rediss://relay@a:6380/1",

		"postgres.password_command":    "token,--user,app",
		"kafka.sasl.password_command":  "token,--user,app",
		"kafka.sasl.token_command":     "token,--user,app",
		"kafka.sasl.oauth.token_url":   "https://idp/token",
		"kafka.sasl.oauth.parameters":  "audience=kafka",
		"kafka.sasl.extensions":        "logicalCluster=lkc-1",
		"nats.create_streams.replicas": "3",
		"bullmq.version":               "4",
		"bullmq.prefix":                "{bull}",
		"bullmq.job_name":              "{aggregate_type}",
		"bullmq.job_id":                "{event_type}:{id}",
		"bullmq.data":                  "payload",
		"rabbitmq.consumers":           `{a: {bind: ["t.*", "#"], retry: [1m, 90s]}, b: {}}`,
		"rabbitmq.url":                 "amqps://relay@a:5671/events",
		"rabbitmq.routing_key":         "{aggregate_type}.{key}",
		"rabbitmq.stream_url":          "rabbitmq-stream+tls://relay@a:5551/events",
		"webhook.url":                  "https://a/hooks",
		"webhook.endpoints":            "orders=https://a/orders",
		"webhook.secret":               "whsec_AAAA whsk_AAAA",
		"sqs.region":                   "eu-west-1",
		"sqs.endpoint":                 "http://a:9324",
		"sqs.account":                  "123456789012",
		"sqs.max_message_bytes":        "1MiB",
		"sns.region":                   "us-gov-east-1",
		"sns.endpoint":                 "https://a",
		"sns.account":                  "123456789012",
		"eventbridge.region":           "cn-north-1",
		"eventbridge.endpoint":         "https://a/b",
		"eventbridge.account":          "123456789012",
		"eventbridge.max_event_bytes":  "1MiB",
		"registry.url":                 "https://a:8081/apis/ccompat/v7,https://b:8081",
		"registry.password_command":    "token,--user,app",
		"registry.token_command":       "token,--user,app",
		"registry.version":             "7",
		"registry.auto_register":       "true",
		"kafka.sasl.mechanism":         "PLAIN",
		"retry.on_dead":                OnDeadHold,
		"on_halt":                      OnHaltExit,
		"bullmq.backoff":               "mine 2m",
		"http.listen":                  ":0",
		"tracing.endpoint":             "http://collector:4318",
		"log.level":                    "debug",
		"outbox.time_zone":             "America/Lima",
		"log.format":                   LogConsole,
		"http.read":                    ReadToken,
		// One value each in this version.
		"sink": SinkKafka, "message.format": FormatPlain, "kafka.partitioner": PartitionerMurmur2,
	}
	if v, found := special[k.Name]; found {
		return v
	}
	switch reflect.ValueOf(Default()).FieldByIndex(k.index).Interface().(type) {
	case bool:
		return "false"
	case int:
		return "7"
	case float64:
		return "0.5"
	case []Duration:
		return "1m,5m"
	case []int:
		return "409,423"
	case Duration:
		return "2s"
	case ByteSize:
		return "3MiB"
	case string:
		return "other"
	}
	t.Fatalf("no example for %s", k.Name)
	return ""
}

// companions are the settings that a key requires.
var companions = map[string][]Setting{
	"kafka.tls.ca_file":         {{"--set", "kafka.tls.enabled", "true"}},
	"kafka.tls.cert_file":       {{"--set", "kafka.tls.enabled", "true"}, {"--set", "kafka.tls.key_file", "k"}},
	"kafka.tls.key_file":        {{"--set", "kafka.tls.enabled", "true"}, {"--set", "kafka.tls.cert_file", "c"}},
	"kafka.tls.server_name":     {{"--set", "kafka.tls.enabled", "true"}},
	"inbox.password_file":       {{"--set", "inbox.url", "postgres://b@db/b"}},
	"http.read":                 {{"--set", "http.token_file", "t"}},
	"registry.username":         {{"--set", "registry.password_file", "p"}},
	"registry.password_file":    {{"--set", "registry.username", "u"}},
	"registry.password_command": {{"--set", "registry.username", "u"}},
	"nats.username":             {{"--set", "nats.password_file", "p"}},
	"nats.password_file":        {{"--set", "nats.username", "u"}},
	"registry.auto_register":    {{"--set", "registry.files", "schemas"}},
	"kafka.sasl.mechanism":      {{"--set", "kafka.sasl.username", "u"}, {"--set", "kafka.sasl.password_file", "p"}},
	"kafka.sasl.username":       {{"--set", "kafka.sasl.mechanism", "PLAIN"}, {"--set", "kafka.sasl.password_file", "p"}},
	"kafka.sasl.password_file":  {{"--set", "kafka.sasl.mechanism", "PLAIN"}, {"--set", "kafka.sasl.username", "u"}},
	"kafka.sasl.password_command": {{"--set", "kafka.sasl.mechanism", "PLAIN"},
		{"--set", "kafka.sasl.username", "u"}},
	"kafka.sasl.token_file":    {{"--set", "kafka.sasl.mechanism", OAuthBearer}},
	"kafka.sasl.token_command": {{"--set", "kafka.sasl.mechanism", OAuthBearer}},
	"kafka.sasl.aws_region":    {{"--set", "kafka.sasl.mechanism", OAuthBearer}},
	"kafka.sasl.extensions": {{"--set", "kafka.sasl.mechanism", OAuthBearer},
		{"--set", "kafka.sasl.token_file", "t"}},
	"kafka.sasl.oauth.token_url":          anOAuthServer[:3],
	"kafka.sasl.oauth.client_id":          append(anOAuthServer[:2:2], anOAuthServer[3]),
	"kafka.sasl.oauth.client_secret_file": append(anOAuthServer[:1:1], anOAuthServer[2:]...),
	"kafka.sasl.oauth.scope":              anOAuthServer,
	"kafka.sasl.oauth.parameters":         anOAuthServer,
	"kafka.sasl.oauth.ca_file":            anOAuthServer,
}

var anOAuthServer = []Setting{
	{"--set", "kafka.sasl.mechanism", OAuthBearer}, {"--set", "kafka.sasl.oauth.client_secret_file", "s"},
	{"--set", "kafka.sasl.oauth.client_id", "c"}, {"--set", "kafka.sasl.oauth.token_url", "https://idp/t"},
}

// securedURLs say of the sections with certificates that there is TLS.
var securedURLs = map[string]Setting{
	"nats.tls":            {"--set", "nats.url", "tls://a"},
	"redis.tls":           {"--set", "redis.url", "rediss://a"},
	"rabbitmq.tls":        {"--set", "rabbitmq.url", "amqps://a"},
	"rabbitmq_stream.tls": {"--set", "rabbitmq.stream_url", "rabbitmq-stream+tls://a"},
	"webhook.tls":         {"--set", "webhook.url", "https://a"},
	"registry.tls":        {"--set", "registry.url", "https://a"},
}

func companionsOf(key string) []Setting {
	section := key[:max(strings.LastIndexByte(key, '.'), 0)]
	url, secured := securedURLs[section]
	if !secured {
		return companions[key]
	}
	switch lastWord(key) {
	case "cert_file":
		return []Setting{url, {"--set", section + ".key_file", "k"}}
	case "key_file":
		return []Setting{url, {"--set", section + ".cert_file", "c"}}
	}
	return []Setting{url}
}

// Breaks it catches: a key that one of the sources cannot set, or that lands in another field.
func TestEveryKeyIsSetByFileEnvironmentAndFlag(t *testing.T) {
	for _, k := range availableKeys() {
		value := another(t, k)
		inputs := map[string]Input{
			"file":        {File: "relay.yaml", Text: []byte(yamlFor(k.Name, value))},
			"environment": {Environ: []string{k.Env + "=" + value}},
			"flag":        {Flags: []Setting{{Flag: "--" + k.Flag, Key: k.Name, Value: value}}},
		}
		for source, in := range inputs {
			// 2s is more than a quarter of the default timeout's allowance; give the relation room.
			if k.Name == "postgres.status_interval" || k.Name == "postgres.wal_sender_timeout" {
				in.Flags = append(in.Flags, Setting{"--set", "postgres.status_interval", "100ms"})
			}
			in.Flags = append(in.Flags, companionsOf(k.Name)...)
			cfg, err := Load(in)
			if err != nil {
				t.Errorf("%s from %s: %v", k.Name, source, err)
				continue
			}
			if k.Name == "postgres.status_interval" {
				continue // its own flag above won
			}
			want := Default()
			for _, s := range append(companionsOf(k.Name), Setting{"", k.Name, value}) {
				key, _ := findKey(s.Key)
				if err := key.assign(&want, raw{text: s.Value}); err != nil {
					t.Fatal(err)
				}
			}
			want.Postgres.StatusInterval = cfg.Postgres.StatusInterval
			if diff := cmp.Diff(want, cfg); diff != "" {
				t.Errorf("%s = %s from %s (-want +got):\n%s", k.Name, value, source, diff)
			}
		}
	}
}

// yamlFor writes one key as nested mappings.
func yamlFor(key, value string) string {
	words := strings.Split(key, ".")
	var b strings.Builder
	for depth, word := range words {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", depth), word)
		if depth < len(words)-1 {
			b.WriteByte('\n')
		}
	}
	if key == "message.headers" {
		value = "{" + strings.ReplaceAll(value, "=", ": ") + "}"
	} else {
		value = fmt.Sprintf("%q", value)
	}
	return b.String() + " " + value + "\n"
}

// Breaks it catches: a key that is not built being accepted and ignored. Seen to fail with every key
// taken for available, and with a flag for such a key accepted.
func TestUnavailableKeysAreUnknown(t *testing.T) {
	notYetBefore, allBefore := notYet, allKeys
	t.Cleanup(func() { notYet, allKeys = notYetBefore, allBefore })
	// There need not be such a key in every version: one of its own, and a section.
	notYet, allKeys = append(slices.Clone(notYet), "kafka.linger", "dlq.breaker"), sync.OnceValue(listKeys)
	unavailable := 0
	for _, k := range Keys() {
		if k.Available {
			continue
		}
		unavailable++
		for source, in := range map[string]Input{
			"file":        {File: "relay.yaml", Text: []byte(yamlFor(k.Name, "1"))},
			"environment": {Environ: []string{k.Env + "=1"}},
			"flag":        {Flags: []Setting{{"--set", k.Name, "1"}}},
		} {
			_, err := Load(in)
			if err == nil || !strings.Contains(err.Error(), k.Name) ||
				!strings.Contains(err.Error(), "unknown key: not available in this version") {
				t.Errorf("%s from %s: got %v, want an unknown key that is not available in this version", k.Name, source, err)
			}
		}
	}
	if unavailable < 4 {
		t.Errorf("keys that are not available: got %d, want kafka.linger and the three of dlq.breaker", unavailable)
	}
}

// Seen to fail with a match of the last word worth nothing.
func TestNearestKnownKey(t *testing.T) {
	for _, c := range []struct{ unknown, want string }{
		{"postgres.slott", "postgres.slot"},
		{"brokers", "kafka.brokers"},
		{"kafka.broker", "kafka.brokers"},
		{"log.lvl", "log.level"},
		{"outbox.columns.aggregateid", "outbox.columns.aggregate_id"},
		{"kafka.slot", "postgres.slot"},
	} {
		got := unknownKey(c.unknown, "").What
		if want := "unknown key; the nearest known key is " + c.want; got != want {
			t.Errorf("%s: got %q, want %q", c.unknown, got, want)
		}
	}
}
