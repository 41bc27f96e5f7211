package test

import "slices"

const module = "github.com/cdc-relay/cdc-relay"

// room is one folder of the house: what its code may import.
type room struct {
	own      []string // of this module
	external []string // modules, by the beginning of their path; the standard library is free
	tests    []string // of this module, by its tests in addition
}

// storeWords is what each room of store may know of this module.
var storeWords = []string{"outbox", "store/internal/record", "store/internal/db"}

// house is every folder with Go code, from the words at the bottom to the command at the top. Siblings do not know each
// other: they meet in relay. A new folder, or a new arrow, is a decision about the design and belongs into
// docs/design.md.
var house = map[string]room{
	"outbox":   {},
	"offsets":  {own: []string{"outbox"}},
	"decoder":  {own: []string{"outbox"}},
	"retry":    {own: []string{"outbox"}},
	"sql":      {},
	"verify":   {},
	"certs":    {},
	"plain":    {},
	"logqueue": {own: []string{"plain"}, external: []string{"github.com/rs/zerolog"}},
	"secret":   {external: []string{"golang.org/x/oauth2"}},
	"login": {own: []string{"secret"}, external: []string{"github.com/jackc/pgx/v5"},
		tests: []string{"replication", "store"}},

	"replication": {own: []string{"login", "outbox", "secret"},
		external: []string{"github.com/jackc/pglogrepl", "github.com/jackc/pgx/v5"}},

	// The rooms of store know the words and what runs statements, and not each other: they meet in store.
	"store/internal/record": {own: []string{"outbox", "secret"}, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/db": {own: append([]string{"login"}, storeWords[:2]...),
		external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/catalog": {own: append(slices.Clone(storeWords), "sql"),
		external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/lease":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/table":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/outcome": {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/queue":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/desk":    {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store/internal/upkeep":  {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"store": {
		own: []string{
			"login", "store/internal/catalog", "store/internal/db", "store/internal/desk", "store/internal/lease",
			"store/internal/outcome",
			"store/internal/queue", "store/internal/record", "store/internal/table", "store/internal/upkeep",
		},
		external: []string{"github.com/jackc/pgx/v5"},
	},

	"sink":          {own: []string{"outbox"}, tests: []string{"sink/sinktest"}},
	"sink/sinktest": {own: []string{"outbox", "sink"}},
	// What drivers of brokers with conditional appends share.
	"sink/conditional": {own: []string{"sink"}},
	// The rooms of sink/kafka know nothing of its driver, nor of each other but what a code means.
	"sink/kafka/internal/codes": {own: []string{"outbox", "sink"}},
	"sink/kafka/internal/recordset": {
		own:      []string{"sink"},
		external: []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4"},
	},
	"sink/kafka/internal/connect": {
		own:      []string{"certs", "secret", "sink/kafka/internal/codes"},
		external: []string{"github.com/segmentio/kafka-go", "github.com/xdg-go/scram"},
	},
	"sink/kafka": {
		own: []string{
			"outbox", "secret", "sink", "sink/kafka/internal/codes", "sink/kafka/internal/connect",
			"sink/kafka/internal/recordset",
		},
		external: []string{"github.com/segmentio/kafka-go"},
		tests:    []string{"sink/sinktest"},
	},
	"sink/nats": {
		own:      []string{"certs", "outbox", "secret", "sink", "sink/conditional"},
		external: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nuid"},
		tests:    []string{"sink/sinktest"},
	},
	"sink/rabbitmq": {
		own:      []string{"certs", "outbox", "secret", "sink"},
		external: []string{"github.com/rabbitmq/amqp091-go"},
		tests:    []string{"sink/sinktest"},
	},
	"sink/rabbitmqstream": {
		own:      []string{"certs", "outbox", "secret", "sink", "sink/rabbitmqstream/internal/wire"},
		external: []string{"github.com/rabbitmq/amqp091-go"}, // of its tests
		tests:    []string{"sink/sinktest"},
	},
	"sink/rabbitmqstream/internal/wire": {own: []string{"certs", "sink"}},
	"sink/redisconn": { // what both drivers on Redis share
		own: []string{"certs", "secret", "sink", "sink/conditional"}, external: []string{"github.com/redis/go-redis/v9"},
	},
	"sink/bullmq": {
		own:      []string{"certs", "sink", "sink/conditional", "sink/redisconn"},
		external: []string{"github.com/redis/go-redis/v9"},
		tests:    []string{"outbox", "sink/sinktest"},
	},
	"sink/redisstream": {
		own:      []string{"certs", "outbox", "sink", "sink/conditional", "sink/redisconn"},
		external: []string{"github.com/redis/go-redis/v9"},
		tests:    []string{"sink/sinktest"},
	},
	"sink/webhook": {own: []string{"certs", "outbox", "sink"}, tests: []string{"sink/sinktest"}},
	"sink/stdout":  {own: []string{"outbox", "sink"}, tests: []string{"sink/sinktest"}},

	"config/internal/masking":  {},
	"config/internal/spelling": {},
	"config": {
		own: []string{"config/internal/masking", "config/internal/spelling"}, external: []string{"github.com/goccy/go-yaml"},
	},
	"schemas":                    {external: []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
	"relay/internal/halt":        {own: []string{"decoder", "login", "replication"}},
	"relay/internal/health":      {own: []string{"relay/internal/halt", "sink"}},
	"relay/internal/lease":       {},
	"relay/internal/interleaved": {own: []string{"outbox"}},
	"relay/internal/logs":        {own: []string{"config", "logqueue"}, external: []string{"github.com/rs/zerolog"}},
	"registry": {
		own: []string{"certs", "config", "retry", "schemas", "secret"},
		external: []string{
			"github.com/bufbuild/protocompile", "github.com/rs/zerolog", "github.com/twmb/avro", "google.golang.org/protobuf",
		},
	},
	"relay/internal/memory": {},
	"relay/internal/message": {own: []string{"config", "outbox", "relay/internal/memory", "schemas", "sink"},
		external: []string{"github.com/rs/zerolog"}}, // of its tests
	"relay/internal/settings": {
		own: []string{"config", "relay/internal/message", "replication", "retry", "secret", "store"},
	},
	"relay/internal/meter": { // of store it uses the row of the slot
		own: []string{
			"logqueue", "outbox", "relay/internal/halt", "relay/internal/health", "relay/internal/interleaved", "sink",
			"store",
		},
		external: []string{
			"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "google.golang.org/protobuf",
		},
		tests: []string{"sink/sinktest"},
	},
	"relay/internal/recovery": { // of store it uses the rows that it compares with the topics
		own: []string{"outbox", "sink", "store"}, external: []string{"github.com/rs/zerolog"},
	},
	"relay/internal/requests": { // of store it uses the rows of requests and of what they are about
		own: []string{"config", "outbox", "store"}, external: []string{"github.com/rs/zerolog"},
	},
	"relay/internal/upkeep": { // of store it uses what an error means
		own: []string{"config", "store"}, external: []string{"github.com/rs/zerolog"},
	},
	"relay/internal/reconcile": { // of store it uses the rows of the audit, and what an error means
		own: []string{"outbox", "store"}, external: []string{"github.com/rs/zerolog"},
	},
	"relay/internal/bootstrap": { // of store it uses the rows of state and slot, and what an error means
		own:      []string{"config", "decoder", "login", "outbox", "relay/internal/halt", "replication", "store"},
		external: []string{"github.com/rs/zerolog"},
	},
	"relay/internal/alarms": {own: []string{"sink", "store"}},
	"relay/internal/gate":   {},
	"relay/internal/restart": { // of store it uses what an error means
		own:      []string{"login", "relay/internal/bootstrap", "relay/internal/meter", "replication", "retry", "store"},
		external: []string{"github.com/jackc/pgx/v5"},
	},
	"relay/internal/blockers": {
		own: []string{"store"}, external: []string{"github.com/rs/zerolog"}, tests: []string{"test/harness"},
	},
	"relay/internal/frontier": {own: []string{"store"}},
	"relay/internal/tally":    {own: []string{"config"}},
	"relay/internal/refusal":  {own: []string{"outbox", "sink", "store"}, external: []string{"github.com/jackc/pgx/v5"}},
	"relay/internal/settle": { // of store it uses the rows that it writes and reads: what it records are those
		own: []string{"config", "offsets", "outbox", "relay/internal/frontier", "relay/internal/gate", "relay/internal/halt",
			"relay/internal/memory", "relay/internal/refusal", "relay/internal/tally", "retry", "sink", "store"},
		external: []string{"github.com/rs/zerolog"},
		tests:    []string{"sink/sinktest"},
	},
	"relay": {
		own: []string{
			"config", "decoder", "logqueue", "offsets", "outbox", "relay/internal/alarms",
			"relay/internal/blockers",
			"relay/internal/bootstrap", "relay/internal/frontier", "relay/internal/halt", "relay/internal/health",
			"relay/internal/lease", "relay/internal/logs", "relay/internal/message", "relay/internal/meter",
			"relay/internal/reconcile",
			"relay/internal/recovery", "relay/internal/requests", "relay/internal/restart",
			"relay/internal/settings", "relay/internal/settle", "relay/internal/upkeep", "replication", "schemas", "sink",
			"store",
		},
		external: []string{"github.com/prometheus/client_golang", "github.com/rs/zerolog"},
		tests:    []string{"registry", "sink/kafka", "sink/sinktest"},
	},
	"consumers": { // of store it uses how lists, ages and payloads are told
		own: []string{"login", "secret", "store"}, external: []string{"github.com/jackc/pgx/v5"},
		tests: []string{"install/inbox"},
	},
	"docs":           {},
	"admin/console":  {},
	"admin/handbook": {own: []string{"docs"}, external: []string{"github.com/yuin/goldmark"}},
	"admin/history":  {own: []string{"relay"}},
	"admin": {
		own: []string{"admin/console", "admin/handbook", "admin/history", "consumers", "outbox", "relay",
			"store"},
		external: []string{"github.com/prometheus/client_golang", "github.com/rs/zerolog"},
		tests:    []string{"config", "install/inbox", "sink/kafka"},
	},

	"tracing": {
		own:      []string{"relay", "sink"},
		external: []string{"github.com/rs/zerolog", "go.opentelemetry.io/otel"},
		tests:    []string{"outbox"},
	},

	"embedded": {own: []string{"embedded/child"},
		external: []string{"github.com/fergusstrange/embedded-postgres", "github.com/twmb/franz-go"}},
	"embedded/child": {},

	"drivers": {
		own: []string{"certs", "config", "registry", "relay", "secret", "sink", "sink/bullmq", "sink/kafka", "sink/nats",
			"sink/rabbitmq", "sink/rabbitmqstream", "sink/redisconn", "sink/redisstream", "sink/stdout", "sink/webhook"},
		external: []string{
			"github.com/aws/aws-msk-iam-sasl-signer-go", "github.com/rs/zerolog", "github.com/segmentio/kafka-go",
		},
	},
	"install": {own: []string{"config", "login", "relay", "replication", "store"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"}},
	"install/inbox": {own: []string{"store"}, external: []string{"github.com/jackc/pgx/v5"}},
	// These two look at databases and brokers in ways that no run needs, so they ask their drivers themselves.
	"check": {
		own: []string{"config", "drivers", "login", "outbox", "registry", "relay", "replication", "sink", "sink/kafka",
			"store"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"verify/effects": {own: []string{"store"}, external: []string{"github.com/jackc/pgx/v5"}},
	"verify/audit": {
		own:      []string{"config", "drivers", "outbox", "sink", "store", "verify"},
		external: []string{"github.com/segmentio/kafka-go", "golang.org/x/sync"},
	},
	"bench": {
		own:      []string{"config", "drivers", "install", "outbox", "relay", "replication", "store", "verify/audit"},
		external: []string{"github.com/rs/zerolog", "github.com/segmentio/kafka-go", "golang.org/x/sync"},
	},

	// A command parses, calls and prints.
	"cmd/internal/cli": {
		own: []string{"config", "login", "logqueue", "plain", "schemas"},
		external: []string{
			"github.com/goccy/go-yaml", "github.com/jackc/pgx/v5", "github.com/mattn/go-isatty", "github.com/rs/zerolog",
			"github.com/spf13/cobra", "github.com/spf13/pflag",
		},
	},
	"cmd/internal/demo": {
		own: []string{"cmd/internal/cli", "config"}, external: []string{"github.com/spf13/cobra"},
	},
	"cmd/cdc-relay/internal/ahead": {own: []string{"check", "config"}, external: []string{"github.com/rs/zerolog"}},
	"cmd/cdc-relay/internal/ask": {own: []string{
		"cmd/internal/cli", "config", "consumers", "relay", "secret", "store",
	}, external: []string{"github.com/spf13/cobra"}},
	"cmd/cdc-relay/internal/configure": { // of relay it uses what a configuration means to the store
		own:      []string{"cmd/internal/cli", "config", "install", "relay", "store"},
		external: []string{"github.com/spf13/cobra"},
	},
	"cmd/cdc-relay/internal/edit":  {},
	"cmd/cdc-relay/internal/clean": {own: []string{"config", "store"}},
	"cmd/cdc-relay/internal/reconcile": {
		own:      []string{"cmd/cdc-relay/internal/ask", "cmd/internal/cli", "config", "drivers", "relay", "store"},
		external: []string{"github.com/rs/zerolog"},
	},
	"cmd/cdc-relay/internal/slot": {own: []string{
		"cmd/cdc-relay/internal/ask", "cmd/cdc-relay/internal/show", "cmd/internal/cli", "config", "outbox", "relay",
		"replication", "store",
	}, external: []string{"github.com/spf13/cobra"}},
	"cmd/cdc-relay/internal/show": {own: []string{
		"bench", "check", "cmd/cdc-relay/internal/ask", "cmd/internal/cli", "config", "consumers", "install", "relay",
		"store", "verify/audit", "verify/effects",
	}},
	"cmd/cdc-relay": {
		own: []string{
			"admin", "bench", "check", "cmd/cdc-relay/internal/ahead", "cmd/cdc-relay/internal/ask",
			"cmd/cdc-relay/internal/clean", "cmd/cdc-relay/internal/configure",
			"cmd/cdc-relay/internal/edit", "cmd/cdc-relay/internal/reconcile",
			"cmd/cdc-relay/internal/show", "cmd/cdc-relay/internal/slot", "cmd/internal/cli", "cmd/internal/demo",
			"config", "consumers", "drivers", "install", "install/inbox", "logqueue", "outbox", "relay", "replication", "store",
			"tracing", "verify/audit", "verify/effects",
		},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog", "github.com/spf13/cobra"},
	},
	// The servers of the demo are linked here, and nowhere else that is shipped.
	"cmd/cdc-relay-demo": {
		own: []string{
			"admin", "cmd/internal/cli", "cmd/internal/demo", "config", "drivers", "embedded", "install", "relay", "store",
		},
		external: []string{
			"github.com/jackc/pgx/v5", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go",
			"github.com/segmentio/kafka-go", "github.com/spf13/cobra", "golang.org/x/sync",
		},
	},

	// Modules of their own, so that who imports them does not get the relay's dependencies.
	"emit": {},
	"inbox": {
		own: []string{"inbox/internal/lanes", "inbox/internal/ledger"},
		external: []string{
			"github.com/jackc/pgx/v5", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo",
			"github.com/twmb/franz-go/pkg/kmsg", "go.opentelemetry.io/otel",
		},
	},
	"inbox/internal/lanes":    {external: []string{"github.com/twmb/franz-go/pkg/kgo"}},
	"inbox/internal/ledger":   {external: []string{"github.com/jackc/pgx/v5"}},
	"inbox/internal/protocol": {},
	"inbox/prom":              {own: []string{"inbox"}, external: []string{"github.com/prometheus/client_golang"}},
	"test/inbox": { // and the libraries beside which it is measured
		external: []string{"github.com/IBM/sarama", "github.com/ThreeDotsLabs"},
		tests:    []string{"emit", "inbox", "inbox/prom"},
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
			"admin", "config", "consumers", "docs", "install/inbox", "relay", "sink/kafka", "store",
		},
	},
	"test/forgetful": {external: []string{"github.com/hanwen/go-fuse/v2"}},

	// What a user copies: it knows nothing of the relay.
	"examples/embed": {own: []string{"config", "install", "relay", "sink", "sink/kafka"},
		external: []string{"github.com/prometheus/client_golang"}},
	"examples/consumer": {
		own:      []string{"inbox", "inbox/prom"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/prometheus/client_golang"},
	},
	"examples/brokers": {external: []string{"github.com/rabbitmq/amqp091-go"}}, // of its tests
	"examples/brokers/nats": {
		external: []string{"github.com/jackc/pgx/v5", "github.com/nats-io/nats.go"},
	},
	"examples/brokers/rabbitmq": {
		external: []string{"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go"},
	},
	"examples/brokers/rabbitmqstream": {
		external: []string{"github.com/jackc/pgx/v5", "github.com/rabbitmq/amqp091-go"},
	},
	"examples/brokers/redis": {
		external: []string{"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9"},
	},
	"examples/languages": {tests: []string{"inbox"}},
	"examples/middleware": {own: []string{"inbox"}, external: []string{
		"github.com/jackc/pgx/v5", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/sony/gobreaker",
	}},
	"examples/shop": {own: []string{"emit", "inbox"}, external: []string{"github.com/jackc/pgx/v5"}},

	"test": {},
	"test/harness": {
		own: []string{"embedded", "embedded/child", "verify"},
		external: []string{
			"github.com/goccy/go-yaml", "github.com/jackc/pgx/v5", "github.com/twmb/franz-go", "go.opentelemetry.io/proto/otlp",
			"go.uber.org/goleak", "google.golang.org/protobuf",
		},
	},
	"test/registry": {
		tests:    []string{"bench", "config", "registry", "test/cutproxy", "test/harness"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"test/logins": {
		tests:    []string{"certs", "config", "drivers", "sink", "sink/sinktest"},
		external: []string{"github.com/nats-io/nats.go", "github.com/rabbitmq/amqp091-go", "github.com/rs/zerolog"},
	},
	"test/cutproxy": {},
	"test/chaos":    {},
	"test/brokers": {external: []string{
		"github.com/nats-io/nats.go", "github.com/rabbitmq/amqp091-go", "github.com/redis/go-redis/v9",
	}},
	"test/simulator": {
		own: []string{
			"config", "outbox", "relay", "replication", "sink", "sink/conditional", "sink/rabbitmq", "sink/webhook", "store",
		},
		tests:    []string{"embedded", "test/harness"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"test/budget": {},
	"test/mutate": {},
	"test/bench":  {tests: []string{"bench", "sink", "sink/kafka"}},
}
