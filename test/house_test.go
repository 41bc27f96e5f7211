package test

import "slices"

const module = "github.com/cdc-relay/cdc-relay"

// room is one folder of the house: what its code may import.
type room struct {
	own      []string // of this module
	external []string // modules, by the beginning of their path; the standard library is free
	tests    []string // of this module, by its tests in addition
}

// storeWords are the packages of this module that each package of store may import.
var storeWords = []string{"internal/outbox", "internal/store/internal/record", "internal/store/internal/db"}

// house is every folder with Go code, from the words at the bottom to the command at the top. Siblings do not know each
// other: they meet in relay. A new folder, or a new arrow, is a decision about the design and belongs into
// docs/design.md.
var house = map[string]room{
	"internal/outbox":         {},
	"offsets":                 {own: []string{"internal/outbox"}},
	"decoder":                 {own: []string{"internal/outbox"}},
	"retry":                   {own: []string{"internal/outbox"}},
	"sql":                     {},
	"internal/doctor/verify":  {},
	"internal/access/certs":   {},
	"internal/plain":          {},
	"internal/tap":            {},
	"internal/watch/logqueue": {own: []string{"config", "internal/plain"}, external: []string{"github.com/rs/zerolog"}},
	"internal/access/secret":  {external: []string{"golang.org/x/oauth2"}},
	"internal/access/login": {own: []string{"internal/access/secret"}, external: []string{"github.com/jackc/pgx/v5"},
		tests: []string{"replication", "internal/store"}},

	"replication": {own: []string{"internal/access/login", "internal/outbox", "internal/access/secret"},
		external: []string{"github.com/jackc/pglogrepl", "github.com/jackc/pgx/v5"}},

	// The rooms of store know the words and what runs statements, and not each other: they meet in store.
	"internal/store/internal/record": {own: []string{"internal/outbox",
		"internal/access/secret"}, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/db": {own: append([]string{"internal/access/login"}, storeWords[:2]...),
		external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/catalog": {own: append(slices.Clone(storeWords), "sql"),
		external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/lease":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/table":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/outcome": {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/queue":   {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/desk":    {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store/internal/upkeep":  {own: storeWords, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/store": {
		own: []string{
			"internal/access/login", "internal/outbox", "internal/store/internal/catalog", "internal/store/internal/db",
			"internal/store/internal/desk", "internal/store/internal/lease",
			"internal/store/internal/outcome",
			"internal/store/internal/queue", "internal/store/internal/record", "internal/store/internal/table",
			"internal/store/internal/upkeep",
		},
		external: []string{"github.com/jackc/pgx/v5"},
	},

	"sink":          {own: []string{"internal/outbox"}, tests: []string{"test/sinktest"}},
	"test/sinktest": {own: []string{"internal/outbox", "sink"}},
	// What drivers of brokers with conditional appends share.
	"internal/conditional": {own: []string{"sink"}},
	// The rooms of sink/kafka know nothing of its driver, nor of each other but what a code means.
	"sink/kafka/internal/codes": {own: []string{"internal/outbox", "sink"}},
	"sink/kafka/internal/recordset": {
		own:      []string{"sink"},
		external: []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4"},
	},
	"sink/kafka/internal/connect": {
		own:      []string{"internal/access/certs", "internal/access/secret", "sink/kafka/internal/codes"},
		external: []string{"github.com/segmentio/kafka-go", "github.com/xdg-go/scram"},
	},
	"sink/kafka": {
		own: []string{
			"internal/outbox", "internal/access/secret", "internal/plain", "sink", "sink/kafka/internal/codes",
			"sink/kafka/internal/connect", "sink/kafka/internal/recordset",
		},
		external: []string{"github.com/segmentio/kafka-go"},
		tests:    []string{"test/sinktest"},
	},
	"sink/nats": {
		own: []string{"internal/access/certs", "internal/outbox", "internal/access/secret", "sink",
			"internal/conditional", "internal/tap"},
		external: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nuid"},
		tests:    []string{"test/sinktest"},
	},
	"sink/rabbitmq": {
		own: []string{"internal/access/certs", "internal/outbox", "internal/access/secret", "internal/plain", "internal/tap",
			"sink", "sink/rabbitmq/internal/wire"},
		external: []string{"github.com/rabbitmq/amqp091-go"},
		tests:    []string{"test/sinktest"},
	},
	"sink/rabbitmq/internal/wire": {own: []string{"internal/access/certs", "sink"}},
	"internal/redisconn": { // what both drivers on Redis share
		own: []string{"internal/access/certs", "internal/access/secret", "internal/plain", "sink",
			"internal/conditional", "internal/tap"}, external: []string{"github.com/redis/go-redis/v9"},
	},
	"sink/redis": {
		own: []string{"internal/access/certs", "internal/outbox", "sink", "internal/conditional",
			"internal/redisconn"},
		external: []string{"github.com/redis/go-redis/v9"},
		tests:    []string{"test/sinktest"},
	},
	"sink/webhook": {own: []string{"internal/access/certs", "internal/outbox",
		"sink"}, tests: []string{"test/sinktest"}},
	"sink/aws": {
		own:      []string{"internal/outbox", "sink"},
		external: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
		tests:    []string{"test/sinktest"},
	},
	"sink/stdout": {own: []string{"internal/outbox", "sink"}, tests: []string{"test/sinktest"}},

	"config": {
		external: []string{"github.com/goccy/go-yaml"},
	},
	"internal/message/schemas": {external: []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
	"internal/run/halt":        {own: []string{"decoder", "internal/access/login", "replication"}},
	"internal/watch/health":    {own: []string{"internal/run/halt", "sink"}},
	"internal/run/lease":       {},
	"internal/run/directory":   {own: []string{"config"}, external: []string{"github.com/rs/zerolog"}},
	"relay/registry": {
		own: []string{"internal/access/certs", "config", "retry", "internal/message/schemas", "internal/access/secret"},
		external: []string{
			"github.com/bufbuild/protocompile", "github.com/rs/zerolog", "github.com/twmb/avro", "google.golang.org/protobuf",
		},
		tests: []string{"relay", "sink/kafka"},
	},
	"internal/memory": {},
	"internal/message": {own: []string{"config", "internal/outbox", "internal/memory",
		"internal/message/schemas", "sink"},
		external: []string{"github.com/rs/zerolog"}}, // of its tests
	"internal/run/settings": {
		own: []string{"config", "internal/message", "replication", "retry", "internal/access/secret", "internal/store"},
	},
	"internal/watch/meter": { // of store it uses the row of the slot
		own: []string{
			"internal/watch/logqueue", "internal/outbox", "internal/run/halt", "internal/watch/health",
			"sink",
			"internal/store",
		},
		external: []string{
			"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "google.golang.org/protobuf",
		},
		tests: []string{"test/sinktest"},
	},
	"internal/run/recovery": { // of store it uses the rows that it compares with the topics
		own: []string{"internal/outbox", "sink", "internal/store"}, external: []string{"github.com/rs/zerolog"},
	},
	"internal/run/spool": { // of store it uses the rows of the spool
		own:      []string{"decoder", "internal/outbox", "internal/store", "replication", "retry"},
		external: []string{"github.com/klauspost/compress", "github.com/rs/zerolog"},
	},
	"internal/settle/requests": { // of store it uses the rows of requests and of what they are about
		own: []string{"config", "internal/outbox", "internal/store"}, external: []string{"github.com/rs/zerolog"},
	},
	"internal/upkeep": { // of store it uses what an error means
		own: []string{"config", "internal/store"}, external: []string{"github.com/rs/zerolog"},
	},
	"internal/upkeep/reconcile": { // of store it uses the rows of the audit, and what an error means
		own: []string{"internal/outbox", "internal/store"}, external: []string{"github.com/rs/zerolog"},
	},
	"internal/run/outboxes": { // of decoder it uses what a relation is called
		own:      []string{"config", "decoder", "internal/outbox", "internal/run/halt", "internal/store"},
		external: []string{"github.com/rs/zerolog"},
	},
	"internal/run/bootstrap": { // of store it uses the rows of state and slot, and what an error means
		own: []string{"config", "decoder", "internal/access/login", "internal/outbox", "internal/run/halt",
			"replication", "internal/store"},
		external: []string{"github.com/rs/zerolog"},
	},
	"internal/settle/alarms": {own: []string{"sink", "internal/store"}},
	"internal/run/restart": { // of store it uses what an error means
		own: []string{"internal/access/login", "internal/run/bootstrap", "internal/watch/meter", "replication",
			"retry", "internal/store"},
		external: []string{"github.com/jackc/pgx/v5"},
	},
	"internal/upkeep/blockers": {
		own: []string{"internal/store"}, external: []string{"github.com/rs/zerolog"}, tests: []string{"test/harness"},
	},
	"internal/settle/frontier": {own: []string{"internal/store"}},
	"internal/settle": { // of store it uses the rows that it writes and reads: what it records are those
		own: []string{"config", "offsets", "internal/outbox", "internal/settle/frontier", "internal/run/halt",
			"internal/memory", "retry", "sink", "internal/store"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
		tests:    []string{"test/sinktest"},
	},
	"relay": {
		own: []string{
			"config", "decoder", "internal/watch/logqueue", "offsets", "internal/outbox", "internal/settle/alarms",
			"internal/upkeep/blockers",
			"internal/run/bootstrap", "internal/settle/frontier", "internal/run/halt", "internal/watch/health",
			"internal/run/lease", "internal/message", "internal/watch/meter",
			"internal/upkeep/reconcile",
			"internal/run/outboxes", "internal/run/recovery", "internal/settle/requests", "internal/run/restart",
			"internal/run/settings", "internal/run/spool", "internal/settle", "internal/upkeep", "replication",
			"internal/message/schemas", "sink", "internal/store",
		},
		external: []string{"github.com/prometheus/client_golang", "github.com/rs/zerolog"},
		tests:    []string{"relay/registry", "sink/kafka", "test/sinktest"},
	},
	"internal/web/consumers": { // of store it uses how lists, ages and payloads are told
		own: []string{"internal/access/login", "internal/access/secret",
			"internal/store"}, external: []string{"github.com/jackc/pgx/v5"},
		tests: []string{"internal/doctor/install/inbox"},
	},
	"docs":                  {},
	"internal/web/console":  {},
	"internal/web/handbook": {own: []string{"docs"}, external: []string{"github.com/yuin/goldmark"}},
	"internal/web/history":  {own: []string{"relay"}},
	"internal/web": {
		own: []string{"internal/web/console", "internal/web/handbook", "internal/web/history",
			"internal/web/consumers", "internal/outbox", "relay", "internal/run/halt", "internal/watch/meter",
			"internal/store"},
		external: []string{"github.com/prometheus/client_golang", "github.com/rs/zerolog"},
		tests:    []string{"config", "internal/doctor/install/inbox", "sink/kafka"},
	},

	"internal/watch/tracing": {
		own:      []string{"relay", "sink"},
		external: []string{"github.com/rs/zerolog", "go.opentelemetry.io/otel"},
		tests:    []string{"internal/outbox"},
	},

	"test/embedded": {own: []string{"test/embedded/child"},
		external: []string{"github.com/fergusstrange/embedded-postgres", "github.com/twmb/franz-go"}},
	"test/embedded/child": {},

	"internal/brokers": {
		own: []string{"internal/access/certs", "config", "relay/registry", "relay", "internal/access/secret",
			"sink", "sink/aws", "sink/kafka", "sink/nats", "sink/rabbitmq",
			"internal/redisconn", "sink/redis", "sink/stdout", "sink/webhook"},
		external: []string{
			"github.com/aws/aws-msk-iam-sasl-signer-go", "github.com/rs/zerolog", "github.com/segmentio/kafka-go",
		},
	},
	"internal/doctor/install": {own: []string{"config", "internal/access/login", "relay", "replication", "internal/store"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"}},
	"internal/doctor/install/inbox": {own: []string{"internal/store"}, external: []string{"github.com/jackc/pgx/v5"}},
	// These two look at databases and brokers in ways that no run needs, so they ask their drivers themselves.
	"internal/doctor/check": {
		own: []string{"config", "internal/brokers", "internal/access/login", "internal/outbox", "relay/registry",
			"relay", "replication", "sink", "sink/kafka",
			"internal/store"},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog"},
	},
	"internal/doctor/verify/effects": {own: []string{"internal/store"}, external: []string{"github.com/jackc/pgx/v5"}},
	"internal/doctor/verify/audit": {
		own: []string{"config", "internal/brokers", "internal/outbox", "sink", "internal/store",
			"internal/doctor/verify"},
		external: []string{"github.com/segmentio/kafka-go", "golang.org/x/sync"},
	},
	"internal/bench": {
		own: []string{"config", "internal/brokers", "internal/doctor/install", "internal/outbox", "relay", "replication",
			"internal/store", "internal/doctor/verify/audit"},
		external: []string{"github.com/rs/zerolog", "github.com/segmentio/kafka-go", "golang.org/x/sync"},
	},

	// A command parses, calls and prints.
	"cmd/internal/cli": {
		own: []string{"config", "internal/access/login", "internal/watch/logqueue", "internal/plain",
			"internal/message/schemas"},
		external: []string{
			"github.com/goccy/go-yaml", "github.com/jackc/pgx/v5", "github.com/mattn/go-isatty", "github.com/rs/zerolog",
			"github.com/spf13/cobra", "github.com/spf13/pflag",
		},
	},
	"cmd/internal/demo": {
		own: []string{"cmd/internal/cli", "config"}, external: []string{"github.com/spf13/cobra"},
	},
	"cmd/cdc-relay/internal/ask": {own: []string{
		"cmd/internal/cli", "config", "internal/web/consumers", "relay", "internal/access/secret", "internal/store",
	}, external: []string{"github.com/spf13/cobra"}},
	"cmd/cdc-relay/internal/configure": { // of relay it uses what a configuration means to the store
		own: []string{
			"cmd/cdc-relay/internal/ask", "cmd/internal/cli", "config", "internal/doctor/install", "internal/outbox", "relay",
			"internal/store",
		},
		external: []string{"github.com/spf13/cobra"},
	},
	"cmd/cdc-relay/internal/edit": {},
	"cmd/cdc-relay/internal/slot": {own: []string{
		"cmd/cdc-relay/internal/ask", "cmd/cdc-relay/internal/show", "cmd/internal/cli", "config",
		"internal/outbox", "relay",
		"replication", "internal/store",
	}, external: []string{"github.com/spf13/cobra"}},
	"cmd/cdc-relay/internal/show": {own: []string{
		"internal/bench", "internal/doctor/check", "cmd/cdc-relay/internal/ask", "cmd/internal/cli", "config",
		"internal/web/consumers", "internal/doctor/install", "relay",
		"internal/store", "internal/doctor/verify/audit", "internal/doctor/verify/effects",
	}},
	"cmd/cdc-relay": {
		own: []string{
			"internal/web", "internal/bench", "internal/doctor/check", "cmd/cdc-relay/internal/ask",
			"cmd/cdc-relay/internal/configure", "cmd/cdc-relay/internal/edit",
			"cmd/cdc-relay/internal/show", "cmd/cdc-relay/internal/slot", "cmd/internal/cli", "cmd/internal/demo",
			"config", "internal/run/directory", "internal/message/schemas",
			"internal/web/consumers", "internal/brokers", "internal/doctor/install", "internal/doctor/install/inbox",
			"internal/watch/logqueue", "internal/outbox", "relay", "replication", "internal/store",
			"internal/watch/tracing", "internal/doctor/verify/audit", "internal/doctor/verify/effects",
		},
		external: []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog", "github.com/spf13/cobra"},
	},
	// The servers of the demo are linked here, and nowhere else that is shipped.
	"cmd/cdc-relay-demo": {
		own: []string{
			"internal/web", "cmd/internal/cli", "cmd/internal/demo", "config", "test/embedded",
			"internal/doctor/install", "relay", "internal/store", "sink", "sink/kafka", "sink/nats", "sink/stdout",
		},
		external: []string{
			"github.com/rs/zerolog",
			"github.com/jackc/pgx/v5", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go",
			"github.com/segmentio/kafka-go", "github.com/spf13/cobra", "golang.org/x/sync",
		},
	},
}
