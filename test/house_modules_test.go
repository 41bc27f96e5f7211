package test

import "maps"

func init() { maps.Copy(house, modules) }

// modules are the folders of other modules, and those of tests and examples, which nothing else imports.
var modules = map[string]room{
	// Modules of their own, so that who imports them does not get the relay's dependencies.
	"emit": {},
	"inbox": {
		own: []string{"inbox/internal/lanes", "inbox/internal/ledger", "inbox/internal/source", "inbox/internal/sqltx"},
		external: []string{
			"github.com/jackc/pgx/v5", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo",
			"github.com/twmb/franz-go/pkg/kmsg", "go.opentelemetry.io/otel",
		},
	},
	"inbox/internal/lanes":    {external: []string{"github.com/twmb/franz-go/pkg/kgo"}},
	"inbox/internal/ledger":   {external: []string{"github.com/jackc/pgx/v5"}},
	"inbox/internal/protocol": {},
	"inbox/internal/source":   {external: []string{"github.com/twmb/franz-go/pkg/kgo"}},
	"inbox/internal/sqltx":    {external: []string{"github.com/jackc/pgx/v5"}},
	"inbox/prom":              {own: []string{"inbox"}, external: []string{"github.com/prometheus/client_golang"}},
	"inbox/nats": {own: []string{"inbox", "inbox/internal/source"}, external: []string{
		"github.com/nats-io/nats.go", "github.com/twmb/franz-go/pkg/kgo",
	}},
	"inbox/redis": {own: []string{"inbox", "inbox/internal/source"}, external: []string{
		"github.com/redis/go-redis/v9", "github.com/twmb/franz-go/pkg/kgo",
	}},
	"inbox/rabbitmq": {own: []string{"inbox", "inbox/internal/source"}, external: []string{
		"github.com/rabbitmq/amqp091-go", "github.com/twmb/franz-go/pkg/kgo",
	}},
	"test/inbox": { // the brokers' clients, and the libraries beside which it is measured
		external: []string{
			"github.com/IBM/sarama", "github.com/ThreeDotsLabs", "github.com/nats-io/nats.go",
			"github.com/rabbitmq/amqp091-go", "github.com/redis/go-redis/v9",
		},
		tests: []string{"emit", "inbox", "inbox/nats", "inbox/prom", "inbox/rabbitmq", "inbox/redis"},
	},
	"test/peers": { // and what the relays are made of beside which it is put
		external: []string{"github.com/jackc/pglogrepl", "github.com/segmentio/kafka-go"},
	},
	"test/kube": { // Helm, and the types of Kubernetes
		external: []string{
			"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring", "helm.sh/helm/v3", "k8s.io/api",
			"k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml",
		},
		tests: []string{"config"},
	},
	"test/openapi": { // and what compares requests and answers with a document
		external: []string{"github.com/pb33f/libopenapi", "github.com/pb33f/libopenapi-validator"},
		tests: []string{
			"internal/web", "config", "internal/web/consumers", "docs", "internal/doctor/install/inbox", "relay", "sink/kafka",
			"internal/store",
		},
	},
	"test/forgetful": {external: []string{"github.com/hanwen/go-fuse/v2"}},

	// What a user copies: it knows nothing of the relay.
	"examples/embed": {own: []string{"config", "relay", "sink", "sink/kafka"},
		external: []string{"github.com/prometheus/client_golang"}},
	"examples/consumer": {
		own:      []string{"inbox", "inbox/prom"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/prometheus/client_golang"},
	},
	"examples/brokers": {external: []string{ // of its tests
		"github.com/aws/aws-sdk-go-v2", "github.com/rabbitmq/amqp091-go",
	}},
	"examples/brokers/nats": {
		own:      []string{"inbox", "inbox/nats"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/nats-io/nats.go"},
	},
	"examples/brokers/rabbitmqqueue": {
		own:      []string{"inbox", "inbox/rabbitmq"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go"},
	},
	"examples/brokers/rabbitmq": {
		external: []string{"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go"},
	},
	"examples/brokers/rabbitmqstream": {
		own:      []string{"inbox", "inbox/rabbitmq"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go"},
	},
	"examples/brokers/sqs": {
		external: []string{"github.com/aws/aws-sdk-go-v2", "github.com/jackc/pgx/v5"},
	},
	"examples/brokers/redis": {
		own:      []string{"inbox", "inbox/redis"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9"},
	},
	"examples/languages": {tests: []string{"inbox"}},
	"examples/middleware": {own: []string{"inbox"}, external: []string{
		"github.com/jackc/pgx/v5", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/sony/gobreaker",
	}},
	"examples/shop": {own: []string{"emit", "inbox"}, external: []string{"github.com/jackc/pgx/v5"}},

	"test": {},
	"test/harness": {
		own: []string{"test/embedded", "test/embedded/child", "test/cutproxy", "internal/doctor/verify"},
		external: []string{
			"github.com/goccy/go-yaml", "github.com/jackc/pgx/v5", "github.com/twmb/franz-go",
			"go.opentelemetry.io/proto/otlp",
			"go.uber.org/goleak", "google.golang.org/protobuf",
		},
	},
	"test/registry": {
		tests:    []string{"internal/bench", "config", "relay/registry", "test/cutproxy", "test/harness"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"test/logins": {
		tests:    []string{"internal/access/certs", "config", "internal/brokers", "sink", "test/sinktest"},
		external: []string{"github.com/nats-io/nats.go", "github.com/rabbitmq/amqp091-go", "github.com/rs/zerolog"},
	},
	"test/packages": {external: []string{
		"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go", "github.com/twmb/franz-go",
	}},
	"test/cutproxy": {},
	"test/chaos":    {},
	"test/brokers": {external: []string{
		"github.com/aws/aws-sdk-go-v2", "github.com/nats-io/nats.go", "github.com/rabbitmq/amqp091-go",
		"github.com/redis/go-redis/v9",
	}},
	"test/simulator": {
		own: []string{
			"config", "internal/outbox", "relay", "replication", "sink", "internal/conditional", "sink/rabbitmq",
			"sink/webhook", "internal/store", "internal/run/spool", "internal/run/outboxes",
		},
		tests:    []string{"test/embedded", "test/harness"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"test/mutate": {},
	"test/bench": {
		tests:    []string{"internal/bench", "internal/run/spool", "sink", "sink/kafka"},
		external: []string{"github.com/klauspost/compress"},
	},
}
