package config

import "time"

// Config is the whole configuration. Each field's `key` tag is its name in the YAML file; the path of names joined by
// dots is the key (postgres.url), in capitals joined by _ behind CDC_RELAY_ its environment variable
// (CDC_RELAY_POSTGRES_URL), joined by - its flag (--postgres-url). The `help` tag is the sentence that the flag's help
// and docs/configuration.md show.
type Config struct {
	Service       string         `key:"service" help:"label of every metric; default: cdc-relay-<database> if the slot is named for the database, too"`
	Postgres      Postgres       `key:"postgres"`
	Outbox        Outbox         `key:"outbox"`
	Journal       Journal        `key:"journal"`
	Sink          string         `key:"sink" help:"kafka; nats: JetStream; redis-stream; bullmq: queues of BullMQ or Bull; rabbitmq: an exchange; rabbitmq-stream; webhook; sqs, sns, eventbridge: AWS; stdout: JSON lines, for a dry run"`
	Message       Message        `key:"message"`
	Kafka         Kafka          `key:"kafka"`
	NATS          NATS           `key:"nats"`
	Redis         Redis          `key:"redis"`
	BullMQ        BullMQ         `key:"bullmq"`
	RabbitMQ      RabbitMQ       `key:"rabbitmq"`
	RabbitStream  RabbitMQStream `key:"rabbitmq_stream"`
	Webhook       Webhook        `key:"webhook"`
	SQS           SQS            `key:"sqs"`
	SNS           SNS            `key:"sns"`
	EventBridge   EventBridge    `key:"eventbridge"`
	Registry      Registry       `key:"registry"`
	Retry         Retry          `key:"retry"`
	DLQ           DLQ            `key:"dlq"`
	Limits        Limits         `key:"limits"`
	Reconcile     Reconcile      `key:"reconcile"`
	Drift         Drift          `key:"drift"`
	WAL           WAL            `key:"wal"`
	LatencyTarget Duration       `key:"latency_target" help:"delay that events may have, to save CPU; includes kafka.linger; 0s: none"`
	ShutdownGrace Duration       `key:"shutdown_grace" help:"how long a stop waits for events in flight"`
	OnHalt        string         `key:"on_halt" help:"stay: not ready, look again; exit: end the process with code 1"`
	Inbox         Inbox          `key:"inbox"`
	HTTP          HTTP           `key:"http"`
	Metrics       Metrics        `key:"metrics"`
	Log           Log            `key:"log"`
	Tracing       Tracing        `key:"tracing"`
}

// Postgres says where the database is and what the relay owns in it.
type Postgres struct {
	URL              string   `key:"url" help:"SQL side: journal, parked events, dead letters, state; a pooler works; required"`
	ReplicationURL   string   `key:"replication_url" help:"the stream; direct, without a pooler; default: postgres.url"`
	PasswordFile     string   `key:"password_file" help:"file with the password, read again at each connect"`
	PasswordCommand  []string `key:"password_command" help:"program and arguments that print the password, run at each connect until what it prints expires; no shell"`
	Slot             string   `key:"slot" help:"replication slot; default: cdc_relay if this database has it or a record of it, else cdc_relay_<database>"`
	Publication      string   `key:"publication" help:"publication of the outbox table"`
	Schema           string   `key:"schema" help:"where the relay's own tables live"`
	StatusInterval   Duration `key:"status_interval" help:"interval of status messages; at most a quarter of postgres.wal_sender_timeout"`
	WALSenderTimeout Duration `key:"wal_sender_timeout" help:"wal_sender_timeout of the relay's own stream only"`
	PoolSize         int      `key:"pool_size" help:"maximum connections of the SQL side"`
	OnSlotLost       string   `key:"on_slot_lost" help:"recover: create a new slot and publish from the table; halt: wait for a person"`

	AllowSecondSlot bool `key:"allow_second_slot" help:"start although relays published from this table under another slot: publishes every event again"`
}

// Outbox describes the application's table.
type Outbox struct {
	Table         string   `key:"table" help:"the outbox table, schema.table"`
	Tables        string   `key:"tables" help:"several outboxes on one slot; instead of outbox.table"`
	Columns       Columns  `key:"columns"`
	AfterPublish  string   `key:"after_publish" help:"what happens to a published row: mark, keep, delete"`
	MarkSet       string   `key:"mark_set" help:"SET list that marks a row; default: published_at = now()"`
	DeadSet       string   `key:"dead_set" help:"SET list for the row of a dead letter, such as status = 'FAILED', last_error = {last_error}; also {attempts}, {error_class}; empty: unchanged"`
	RetrySet      string   `key:"retry_set" help:"the same for the row of an event that is retried or replayed"`
	PublishedWhen string   `key:"published_when" help:"SQL condition of rows that count as published; default: published_at IS NOT NULL, if that column exists"`
	TimeZone      string   `key:"time_zone" help:"time zone of columns of type timestamp, such as America/Lima; default: the database's"`
	OrderBy       string   `key:"order_by" help:"order of a catch-up: columns with commas between them; default: seq if present, else created_at, id"`
	CatchUp       bool     `key:"catch_up" help:"publish unpublished rows that are older than the slot"`
	CatchUpMax    int      `key:"catch_up_max" help:"on the first start, halt if there are more of them; 0: no limit"`
	Retention     Duration `key:"retention" help:"delete rows published longer ago; 0s: never, or at once with outbox.after_publish delete"`
}

// Columns names the outbox table's columns. Headers and CreatedAt are empty if there is no such column. AggregateType
// and AggregateID may also be empty, or templates over columns; see [Columns.Of].
type Columns struct {
	ID            string `key:"id" help:"unique id of the event: uuid, text or integer"`
	AggregateType string `key:"aggregate_type" help:"type of the aggregate, or a template; empty: none, and message.topic names another column"`
	AggregateID   string `key:"aggregate_id" help:"id of the aggregate, or a template; the message key; empty: none"`
	EventType     string `key:"event_type" help:"type of the event"`
	Payload       string `key:"payload" help:"the message's value: jsonb, json, text or bytea"`
	Headers       string `key:"headers" help:"json or jsonb object of strings: message headers; empty: none"`
	CreatedAt     string `key:"created_at" help:"time of the event; empty: none"`
}

// Journal is the relay's record of published events.
type Journal struct {
	Retention Duration `key:"retention" help:"keep journal rows at least this long, and as long as an outbox row needs them"`
}

// Message says how an event becomes a message.
type Message struct {
	Topic     string            `key:"topic" help:"topic; columns of the row in braces"`
	Key       string            `key:"key" help:"message key; order is kept per key; columns of the row in braces"`
	Format    string            `key:"format" help:"plain: payload as value, metadata in headers; envelope: JSON object with both; cloudevents: 1.0, binary mode; avro, protobuf, json_schema: by a registry's schema"`
	Timestamp string            `key:"timestamp" help:"the message's timestamp: publish, created_at"`
	Headers   map[string]string `key:"headers" help:"rename a header, or add a column as one: {id: x-event-id}"`
	Schemas   string            `key:"schemas" help:"directory of JSON Schemas, <event type>.json; misfits become dead letters; empty: none"`
}

// Kafka configures the brokers, producing and logins.
type Kafka struct {
	Brokers           []string     `key:"brokers" help:"host:port of one or more brokers; required with sink kafka"`
	ClientID          string       `key:"client_id" help:"client id in the broker's logs and quotas"`
	Partitioner       string       `key:"partitioner" help:"murmur2, as the Java clients"`
	Compression       string       `key:"compression" help:"compression of record batches that shrink by it"`
	Linger            Duration     `key:"linger" help:"wait for more records before a request"`
	MaxBatchBytes     ByteSize     `key:"max_batch_bytes" help:"largest record batch; a topic's own limit is learned"`
	RequestTimeout    Duration     `key:"request_timeout" help:"maximum time for one request"`
	DialTimeout       Duration     `key:"dial_timeout" help:"maximum time for a connect"`
	PartitionPatience Duration     `key:"partition_patience" help:"park events of a partition that is unavailable for longer"`
	CreateTopics      CreateTopics `key:"create_topics"`
	TLS               TLS          `key:"tls"`
	SASL              SASL         `key:"sasl"`
}

// CreateTopics configures whether and how missing topics are created.
type CreateTopics struct {
	Enabled           bool `key:"enabled" help:"create missing topics; false: their events wait"`
	Partitions        int  `key:"partitions" help:"partitions of a created topic"`
	ReplicationFactor int  `key:"replication_factor" help:"replicas of a created topic"`
}

// TLS secures the connections to the brokers.
type TLS struct {
	Enabled    bool   `key:"enabled" help:"connect with TLS; the files below are read again at each connect"`
	CAFile     string `key:"ca_file" help:"PEM file of trusted authorities; empty: the system's"`
	CertFile   string `key:"cert_file" help:"PEM file of the client certificate"`
	KeyFile    string `key:"key_file" help:"PEM file of the client certificate's key"`
	ServerName string `key:"server_name" help:"name that the broker's certificate must have; empty: the host name"`
}

// SASL authenticates with the brokers.
type SASL struct {
	Mechanism    string `key:"mechanism" help:"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; OAUTHBEARER: a token; empty: none"`
	Username     string `key:"username" help:"user name; not of OAUTHBEARER"`
	PasswordFile string `key:"password_file" help:"file with the password, read again at each connect"`

	PasswordCommand []string `key:"password_command" help:"program and arguments that print the password, run at each connect until what it prints expires; no shell"`

	TokenFile    string            `key:"token_file" help:"of OAUTHBEARER: file with the token, read again at each connect"`
	TokenCommand []string          `key:"token_command" help:"of OAUTHBEARER: program and arguments that print the token, run at each connect until what it prints expires; no shell"`
	AWSRegion    string            `key:"aws_region" help:"of OAUTHBEARER: region of an Amazon MSK cluster with IAM; tokens are signed with AWS's credentials"`
	OAuth        OAuth             `key:"oauth"`
	Extensions   map[string]string `key:"extensions" help:"of OAUTHBEARER: SASL extensions: {logicalCluster: lkc-1, identityPoolId: pool-1}"`
}

// OAuth asks an OAuth 2.0 server for the token of OAUTHBEARER, by client credentials.
type OAuth struct {
	TokenURL         string            `key:"token_url" help:"token endpoint (client credentials)"`
	ClientID         string            `key:"client_id" help:"client id"`
	ClientSecretFile string            `key:"client_secret_file" help:"file with the client secret, read again for each token"`
	Scope            string            `key:"scope" help:"scopes with spaces between them; empty: none"`
	Parameters       map[string]string `key:"parameters" help:"further parameters: {audience: kafka}; no secrets, they are shown"`
	CAFile           string            `key:"ca_file" help:"PEM file of the endpoint's authorities; empty: the system's"`
}

// Retry says how often and when an event that failed by its own fault is tried again.
type Retry struct {
	MaxAttempts    int        `key:"max_attempts" help:"attempts before an event becomes a dead letter"`
	InitialBackoff Duration   `key:"initial_backoff" help:"wait before the second attempt; doubles each time"`
	MaxBackoff     Duration   `key:"max_backoff" help:"longest wait between attempts"`
	Jitter         float64    `key:"jitter" help:"random share added to each wait"`
	Schedule       []Duration `key:"schedule" help:"explicit waits instead: [1m, 5m, 15m]"`
	OnDead         string     `key:"on_dead" help:"continue: the key goes on behind a dead letter; hold: it waits for a person"`
}

// DLQ configures the table of dead letters, their copies and the breaker.
type DLQ struct {
	Table     string   `key:"table" help:"table of dead letters, schema.table; default: <postgres.schema>.<outbox table>_dlq"`
	Topic     string   `key:"topic" help:"topic for copies of dead letters; {topic}: the event's; columns of the row in braces; empty: none"`
	Breaker   Breaker  `key:"breaker"`
	Retention Duration `key:"retention" help:"delete dead letters replayed or discarded longer ago than this; 0s: keep them"`
}

// Breaker halts a flood of dead letters: more than Count and more than Ratio of all events within Window.
type Breaker struct {
	Count  int      `key:"count" help:"halt when more events became dead letters within the window, and dlq.breaker.ratio"`
	Ratio  float64  `key:"ratio" help:"halt when a larger share of the window's events did, and dlq.breaker.count"`
	Window Duration `key:"window" help:"length of the window"`
	// CountInvalid concerns rows whose own content makes them dead letters; see outbox.InvalidCodes.
	CountInvalid bool `key:"count_invalid" help:"count rows that cannot be messages; false: such rows alone never halt the relay"`
}

// Limits bound memory and duplicates.
type Limits struct {
	InFlightEvents int      `key:"in_flight_events" help:"maximum events in memory"`
	InFlightBytes  ByteSize `key:"in_flight_bytes" help:"maximum bytes of events in memory; a larger event is admitted alone"`
	MaxUnrecorded  int      `key:"max_unrecorded" help:"maximum events sent and not yet journaled: the bound of duplicates after a crash"`
	MaxEventBytes  ByteSize `key:"max_event_bytes" help:"dead-letter larger events unread; 0: the topic's limit, and memory for the largest row"`
	Topics         int      `key:"topics" help:"maximum topics named by rows; events for one more become dead letters"`
	ParkedEvents   int      `key:"parked_events" help:"maximum parked events; at the limit the relay waits instead of parking"`
}

// Reconcile proves that no committed row was missed.
type Reconcile struct {
	Interval Duration `key:"interval" help:"time between two rounds of the reconciler"`
}

// Drift notices changes of publication and table.
type Drift struct {
	Interval Duration `key:"interval" help:"time between two checks of publication and table"`
}

// WAL bounds what Postgres keeps while events cannot be sent.
type WAL struct {
	Budget ByteSize `key:"budget" help:"WAL to keep while events cannot be sent, before they are stored in cdc_relay_spool; 0: all"`
}

// Inbox configures where consumers have their inbox tables. The relay itself does not use them.
type Inbox struct {
	URL          string `key:"url" help:"database with the consumers' inbox, for console and commands; default: postgres.url"`
	PasswordFile string `key:"password_file" help:"file with the password of inbox.url, read again at each connect"`
	Schema       string `key:"schema" help:"schema of the inbox"`
}

// HTTP is the listener for metrics, health, API and console.
type HTTP struct {
	Listen    string `key:"listen" help:"host:port of metrics, health, API and console"`
	TokenFile string `key:"token_file" help:"file with the token for changes, and for reading by http.read"`
	Read      string `key:"read" help:"open: this machine reads without the token; token, or empty: reading needs it, if there is one"`
	// ShowPayloads affects only the console and the API; payloads are in the database in any case.
	ShowPayloads bool `key:"show_payloads" help:"show payload and headers of a dead letter"`
}

// Metrics configures additional metrics.
type Metrics struct {
	Aliases bool `key:"aliases" help:"also show outbox_pending_total and outbox_dispatch_latency_ms"`
}

// Log configures logging to standard error.
type Log struct {
	Level  string `key:"level" help:"trace, debug, info, warn, error"`
	Format string `key:"format" help:"json, console"`
}

// Tracing sends a span of OpenTelemetry for each event whose producer sampled its trace.
type Tracing struct {
	Endpoint    string  `key:"endpoint" help:"OTLP/HTTP endpoint for spans; empty: OTEL_EXPORTER_OTLP_ENDPOINT, else none"`
	SampleRatio float64 `key:"sample_ratio" help:"share of sampled traces that get spans"`
}

// The values of the keys that are a choice.
const (
	SlotLostRecover = "recover"
	SlotLostHalt    = "halt"

	AfterPublishMark   = "mark"
	AfterPublishKeep   = "keep"
	AfterPublishDelete = "delete"

	SinkKafka          = "kafka"
	SinkNATS           = "nats"
	SinkRedisStream    = "redis-stream"
	SinkBullMQ         = "bullmq"
	SinkRabbitMQ       = "rabbitmq"
	SinkRabbitMQStream = "rabbitmq-stream"
	SinkWebhook        = "webhook"
	SinkStdout         = "stdout"

	FormatPlain       = "plain"
	FormatEnvelope    = "envelope"
	FormatCloudEvents = "cloudevents"
	FormatAvro        = "avro"
	FormatProtobuf    = "protobuf"
	FormatJSONSchema  = "json_schema"

	TimestampPublish   = "publish"
	TimestampCreatedAt = "created_at"

	PartitionerMurmur2 = "murmur2"

	CompressionNone   = "none"
	CompressionSnappy = "snappy"
	CompressionLZ4    = "lz4"
	CompressionZstd   = "zstd"
	CompressionGzip   = "gzip"

	OnDeadContinue = "continue"
	OnDeadHold     = "hold"

	OAuthBearer = "OAUTHBEARER" // the mechanism that has keys of its own

	OnHaltStay = "stay"
	OnHaltExit = "exit"

	LogJSON    = "json"
	LogConsole = "console"

	ReadOpen  = "open"
	ReadToken = "token"
)

// Default is the configuration when nothing is set. Two keys have no default and are required: postgres.url and,
// unless the sink is another, kafka.brokers.
func Default() Config {
	return Config{
		Service: "cdc-relay",
		Postgres: Postgres{
			Slot:             "cdc_relay",
			Publication:      "cdc_relay",
			Schema:           "public",
			StatusInterval:   Duration(time.Second),
			WALSenderTimeout: Duration(10 * time.Second),
			PoolSize:         4,
			OnSlotLost:       SlotLostRecover,
		},
		Outbox: Outbox{
			Table: "public.outbox_events",
			Columns: Columns{
				ID:            "id",
				AggregateType: "aggregate_type",
				AggregateID:   "aggregate_id",
				EventType:     "event_type",
				Payload:       "payload",
				CreatedAt:     "created_at",
			},
			AfterPublish: AfterPublishMark,
			CatchUp:      true,
			CatchUpMax:   100_000,
		},
		Journal: Journal{Retention: Duration(7 * 24 * time.Hour)},
		Sink:    SinkKafka,
		Message: Message{
			Topic:     "outbox.event.{aggregate_type}",
			Key:       "{aggregate_id}",
			Format:    FormatPlain,
			Timestamp: TimestampPublish,
		},
		Kafka:         defaultKafka(),
		NATS:          NATS{URL: "nats://127.0.0.1:4222", CreateStreams: CreateStreams{Replicas: 1}},
		Redis:         Redis{URL: "redis://127.0.0.1:6379/0"},
		BullMQ:        defaultBullMQ(),
		RabbitMQ:      defaultRabbitMQ(),
		Webhook:       defaultWebhook(),
		SQS:           defaultSQS(),
		SNS:           defaultSNS(),
		EventBridge:   defaultEventBridge(),
		Registry:      defaultRegistry(),
		Retry:         defaultRetry(),
		DLQ:           DLQ{Breaker: Breaker{Count: 100, Ratio: 0.05, Window: Duration(time.Minute), CountInvalid: true}},
		Limits:        defaultLimits(),
		Reconcile:     Reconcile{Interval: Duration(time.Minute)},
		Drift:         Drift{Interval: Duration(time.Minute)},
		WAL:           WAL{Budget: 1 << 30},
		ShutdownGrace: Duration(20 * time.Second),
		OnHalt:        OnHaltStay,
		Inbox:         Inbox{Schema: "public"},
		HTTP:          HTTP{Listen: "127.0.0.1:9464", ShowPayloads: true},
		Log:           Log{Level: "info", Format: LogJSON},
		Tracing:       Tracing{SampleRatio: 1},
	}
}

func defaultKafka() Kafka {
	return Kafka{
		ClientID:          "cdc-relay",
		Partitioner:       PartitionerMurmur2,
		Compression:       CompressionNone,
		MaxBatchBytes:     1 << 20,
		RequestTimeout:    Duration(10 * time.Second),
		DialTimeout:       Duration(3 * time.Second),
		PartitionPatience: Duration(30 * time.Second),
		CreateTopics:      CreateTopics{Partitions: 12, ReplicationFactor: 3},
	}
}

func defaultRetry() Retry {
	return Retry{
		MaxAttempts:    5,
		InitialBackoff: Duration(50 * time.Millisecond),
		MaxBackoff:     Duration(5 * time.Minute),
		Jitter:         0.2,
		OnDead:         OnDeadContinue,
	}
}

func defaultLimits() Limits {
	return Limits{
		InFlightEvents: 50_000,
		InFlightBytes:  32 << 20,
		MaxEventBytes:  DefaultMaxEventBytes,
		MaxUnrecorded:  10_000,
		Topics:         10_000,
		ParkedEvents:   200_000,
	}
}

// DefaultMaxEventBytes is the default of limits.max_event_bytes: far above what brokers take, and with what reading and
// recording such an event needs beside it within the 256 MiB that the chart gives a relay.
const DefaultMaxEventBytes = 64 << 20
