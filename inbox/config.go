package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of a [Config].
const (
	defaultSchema         = "public"
	defaultMaxBatch       = 100
	defaultBatchTime      = 20 * time.Millisecond
	defaultMaxEvents      = 10_000
	defaultMaxBytes       = 64 << 20
	defaultHandlerTimeout = 30 * time.Second
	defaultIdleTimeout    = 10 * time.Second
	defaultGrace          = 20 * time.Second
	defaultKeep           = 14 * 24 * time.Hour
	defaultMaxParked      = 200_000
	defaultMaxAttempts    = 5
	defaultParkAfter      = 3
	defaultBackoff        = 50 * time.Millisecond
	defaultMaxBackoff     = 5 * time.Minute
	defaultJitter         = 0.2
	parkWait              = 10 * time.Second // a lane that would wait longer in memory is parked
	rebalanceTimeout      = 60 * time.Second
	sessionTimeout        = 45 * time.Second
)

// Start selects where a consumer begins in a partition for which the database has no offset.
type Start uint8

const (
	// Earliest begins with the oldest record of the topic.
	Earliest Start = iota
	// Committed begins at the group's offset in Kafka, for a consumer that takes over the group of another program. It
	// has no effect after the first start.
	Committed
)

// OnDead selects what happens to later events of a key when one has failed permanently.
type OnDead uint8

const (
	// Continue makes the event a dead letter and continues with its key.
	Continue OnDead = iota
	// Hold leaves the event parked, with later ones behind it, until a person replays or discards it.
	Hold
)

// Unknown selects what happens to events of types without a handler.
type Unknown uint8

const (
	// Ignore counts them and continues.
	Ignore Unknown = iota
	// Dead makes them dead letters.
	Dead
)

// Retry configures what happens to failed events. The names match the relay's configuration.
type Retry struct {
	MaxAttempts    int             // the first one included, then the event is dead; default 5
	InitialBackoff time.Duration   // doubled with each attempt; default 50 ms
	MaxBackoff     time.Duration   // default 5 min
	Jitter         float64         // of a wait, in both directions; default 0.2
	Schedule       []time.Duration // the waits instead; MaxAttempts is one more than there are
	ParkAfter      int             // attempts in memory, while the partition's offset waits, then parked; default 3
	OnDead         OnDead          // default Continue
}

// Config configures a consumer. Name is required, and either Brokers and Topics, or Source. Zero values of other fields
// mean their defaults.
type Config struct {
	Name    string // permanent name of the consumer, in the inbox and in Kafka
	Group   string // group in Kafka; default: Name
	Brokers []string
	Topics  []string
	Source  Source // a broker other than Kafka, instead of Brokers and Topics

	Schema        string // where the inbox's tables are; default public
	SkipMigration bool   // the tables exist: see Migrate

	Workers        int           // concurrent transactions; default: the pool's connections less two, at least one
	MaxBatch       int           // maximum events in one transaction; default 100
	BatchTime      time.Duration // target duration of a transaction's handlers; default 20 ms
	MaxEvents      int           // in memory; default 10,000
	MaxBytes       int           // of keys and values in memory; default 64 MiB
	MaxParked      int           // maximum parked events; then events wait in memory; default 200,000
	HandlerTimeout time.Duration // maximum duration of one call; default 30 s
	IdleTimeout    time.Duration // the server ends a session that stands still so long in a transaction; default 10 s
	Grace          time.Duration // for running handlers at a stop; default 20 s
	Keep           time.Duration // of ids: longer than the topics keep messages, and some days; default 14 days
	Retry          Retry
	Start          Start
	Unknown        Unknown
	Envelope       bool // the relay's message.format is envelope

	ConsumerProtocol bool   // Kafka's newer group protocol, KIP-848; for Kafka 4.3 and newer
	InstanceID       string // static membership, of the classic protocol
	Client           []kgo.Opt

	Decode   func(m *Message, into any) error      // default: JSON
	Parse    func(r *kgo.Record) (*Message, error) // default: the relay's formats, and Debezium's outbox router
	Classify func(error) error                     // wraps in Permanent, Outage or RetryAfter; see ByMessage
	Log      *slog.Logger                          // default: slog.Default()
	Metrics  Metrics                               // default: none; see package prom
	Tracer   trace.TracerProvider                  // default: OpenTelemetry's global one
}

// FromEnvironment returns c with values from the environment: CONSUMER_MAX_CONCURRENCY, CONSUMER_MAX_RETRIES,
// CONSUMER_RETRY_BASE_DELAY_MS, CONSUMER_RETRY_MAX_DELAY_MS and CONSUMER_RETRY_SCHEDULE, such as 1m,5m,15m. The former
// names CONSUMER_BASE_DELAY_MS and CONSUMER_MAX_DELAY_MS also work.
func (c Config) FromEnvironment() (Config, error) { return c.from(os.LookupEnv) }

func (c Config) from(lookup func(string) (string, bool)) (Config, error) {
	var problems []error
	number := func(name string, least int, set func(int)) {
		text, there := lookup(name)
		if !there {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			problems = append(problems, fmt.Errorf("%s: got %q, want a number from %d on", name, text, least))
			return
		}
		set(n)
	}
	number("CONSUMER_MAX_CONCURRENCY", 1, func(n int) { c.Workers = n })
	number("CONSUMER_MAX_RETRIES", 0, func(n int) { c.Retry.MaxAttempts = n + 1 })
	for _, prefix := range []string{"CONSUMER_", "CONSUMER_RETRY_"} { // the second has precedence
		number(prefix+"BASE_DELAY_MS", 1, func(n int) { c.Retry.InitialBackoff = time.Duration(n) * time.Millisecond })
		number(prefix+"MAX_DELAY_MS", 1, func(n int) { c.Retry.MaxBackoff = time.Duration(n) * time.Millisecond })
	}
	if text, there := lookup("CONSUMER_RETRY_SCHEDULE"); there {
		c.Retry.Schedule = nil
		for part := range strings.SplitSeq(text, ",") {
			d, err := time.ParseDuration(strings.TrimSpace(part))
			if err != nil || d <= 0 {
				problems = append(problems, fmt.Errorf("CONSUMER_RETRY_SCHEDULE: got %q, want durations such as 1m,5m,15m", text))
				break
			}
			c.Retry.Schedule = append(c.Retry.Schedule, d)
		}
	}
	return c, errors.Join(problems...)
}

// complete checks what was given and fills in what was not. connections are the pool's.
func (c Config) complete(connections int) (Config, error) {
	var problems []error
	need := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, errors.New(problem))
		}
	}
	need(c.Name != "", "Name is empty: it names the consumer's rows, and never changes")
	if c.Source != nil {
		problems = append(problems, c.sourceProblems()...)
	} else {
		need(len(c.Brokers) > 0, "Brokers is empty: name the brokers as host:port")
		need(!slices.Contains(c.Brokers, ""), "Brokers has an empty name")
		need(len(c.Topics) > 0, "Topics is empty: name the topics to consume")
		need(!slices.Contains(c.Topics, ""), "Topics has an empty name")
	}
	need(c.Start <= Committed, fmt.Sprintf("Start is %d, want Earliest or Committed", c.Start))
	need(c.Unknown <= Dead, fmt.Sprintf("Unknown is %d, want Ignore or Dead", c.Unknown))
	need(c.Retry.OnDead <= Hold, fmt.Sprintf("Retry.OnDead is %d, want Continue or Hold", c.Retry.OnDead))
	need(c.Retry.Jitter >= 0 && c.Retry.Jitter <= 1, fmt.Sprintf("Retry.Jitter is %v, want 0 to 1", c.Retry.Jitter))
	for _, wait := range c.Retry.Schedule {
		need(wait > 0, fmt.Sprintf("Retry.Schedule has a wait of %v", wait))
	}
	need(connections >= 2,
		fmt.Sprintf("the pool has %d connection, want at least 2: one for a worker and one more", connections))
	need(c.Workers >= 0 && c.Workers < max(connections, 1),
		fmt.Sprintf("Workers is %d, want at most one less than the pool's %d connections", c.Workers, connections))
	need(c.InstanceID == "" || !c.ConsumerProtocol, "InstanceID and ConsumerProtocol exclude each other")
	def(&c.Group, c.Name)
	def(&c.Schema, defaultSchema)
	def(&c.Workers, max(1, connections-2))
	def(&c.MaxBatch, defaultMaxBatch)
	def(&c.BatchTime, defaultBatchTime)
	def(&c.MaxEvents, defaultMaxEvents)
	def(&c.MaxBytes, defaultMaxBytes)
	def(&c.MaxParked, defaultMaxParked)
	def(&c.HandlerTimeout, defaultHandlerTimeout)
	def(&c.IdleTimeout, defaultIdleTimeout)
	def(&c.Grace, defaultGrace)
	def(&c.Keep, defaultKeep)
	def(&c.Log, slog.Default())
	c.Retry = c.Retry.complete()
	for name, n := range map[string]int{"MaxBatch": c.MaxBatch, "MaxEvents": c.MaxEvents, "MaxBytes": c.MaxBytes,
		"MaxParked": c.MaxParked, "Retry.MaxAttempts": c.Retry.MaxAttempts, "Retry.ParkAfter": c.Retry.ParkAfter,
	} {
		need(n > 0, name+" is negative")
	}
	for name, d := range map[string]time.Duration{"BatchTime": c.BatchTime, "HandlerTimeout": c.HandlerTimeout,
		"IdleTimeout": c.IdleTimeout, "Grace": c.Grace, "Keep": c.Keep, "Retry.InitialBackoff": c.Retry.InitialBackoff,
		"Retry.MaxBackoff": c.Retry.MaxBackoff,
	} {
		need(d > 0, name+" is negative")
	}
	if len(problems) > 0 {
		return c, fmt.Errorf("inbox: configuration: %w", errors.Join(problems...))
	}
	return c, nil
}

// sourceProblems checks the source, and that nothing is set beside it that only Kafka has.
func (c Config) sourceProblems() (problems []error) {
	if err := c.Source.Problem(); err != nil {
		problems = append(problems, fmt.Errorf("Source: %w", err))
	}
	for name, set := range map[string]bool{"Group": c.Group != "", "Brokers": len(c.Brokers) > 0,
		"Topics": len(c.Topics) > 0, "Client": len(c.Client) > 0, "Start": c.Start != Earliest,
		"ConsumerProtocol": c.ConsumerProtocol, "InstanceID": c.InstanceID != "",
	} {
		if set {
			problems = append(problems, fmt.Errorf("%s is Kafka's, and Source is another broker: set one of them", name))
		}
	}
	return problems
}

func (r Retry) complete() Retry {
	def(&r.MaxAttempts, defaultMaxAttempts)
	if len(r.Schedule) > 0 {
		r.MaxAttempts = len(r.Schedule) + 1
	}
	def(&r.InitialBackoff, defaultBackoff)
	def(&r.MaxBackoff, defaultMaxBackoff)
	def(&r.Jitter, defaultJitter)
	def(&r.ParkAfter, defaultParkAfter)
	return r
}

// after is the wait behind the attempt of that number, from 1; random is in [0, 1).
func (r Retry) after(attempt int, random float64) time.Duration {
	var wait time.Duration
	if len(r.Schedule) > 0 {
		wait = r.Schedule[min(attempt, len(r.Schedule))-1]
	} else {
		wait = r.InitialBackoff << min(attempt-1, 30)
		if wait > r.MaxBackoff || wait <= 0 {
			wait = r.MaxBackoff
		}
	}
	return time.Duration(float64(wait) * (1 + r.Jitter*(2*random-1)))
}

// def fills in what is its type's zero value.
func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
