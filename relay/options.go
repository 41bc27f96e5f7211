package relay

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file is the way in for Go programs: what New takes. It touches nothing of a relay that runs.

// options holds the arguments of New.
type options struct {
	config     config.Config
	driver     sink.Driver
	log        *zerolog.Logger
	lines      *logqueue.Writer // that log writes to; nil: not known
	version    string
	postgres   Postgres
	tracer     Tracer
	registerer prometheus.Registerer
	schemas    *schemas.Set
	registry   Registry // of the formats that need one
	concerns   func() []Degradation
	standbys   *atomic.Int64
	unchecked  bool // of tests: rounds may follow each other faster than Validate allows
}

// Option changes a default of [New].
type Option func(*options)

// WithLogger logs to l. By default the relay logs to standard error, as the section log of the configuration sets. The
// relay waits for l, so its writer must not block; see [logqueue.Writer].
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.log, o.lines = &l, nil } }

// WithLoggerTo logs to l, which writes to lines. The relay counts the lines that were dropped, and flushes the rest
// when Run ends.
func WithLoggerTo(l zerolog.Logger, lines *logqueue.Writer) Option {
	return func(o *options) { o.log, o.lines = &l, lines }
}

// WithSlog logs to l, which filters by level. The relay never waits for l.
func WithSlog(l *slog.Logger) Option { return WithLoggerTo(logqueue.ToSlog(l)) }

// WithRegisterer registers the relay's metrics with r, too, until Run has ended; [Relay.Registry] has them in any
// case. The metrics of the process and of Go are left to the program.
func WithRegisterer(r prometheus.Registerer) Option { return func(o *options) { o.registerer = r } }

// Registry encodes payloads by the schemas of a schema registry.
type Registry = message.Registry

// WithRegistry encodes payloads through r, which Run closes. The formats avro, protobuf and json_schema need it.
func WithRegistry(r Registry) Option { return func(o *options) { o.registry = r } }

// WithTracer calls t for each attempt to publish an event.
func WithTracer(t Tracer) Option { return func(o *options) { o.tracer = t } }

// WithDegradations adds problems that the program finds, with the reason DegradedConfiguration, to those of the relay.
func WithDegradations(f func() []Degradation) Option { return func(o *options) { o.concerns = f } }

// WithStandbys counts in n the standbys of a process with several relays: the more there are, the less often each of
// them checks whether its slot is free.
func WithStandbys(n *atomic.Int64) Option { return func(o *options) { o.standbys = n } }

// WithVersion sets the version that Status and metrics show.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithPostgres connects through p; by default the relay connects to the servers that the configuration names.
func WithPostgres(p Postgres) Option { return func(o *options) { o.postgres = p } }

// WithSchemas validates payloads by s. By default, and for nil, New compiles message.schemas.
func WithSchemas(s *schemas.Set) Option { return func(o *options) { o.schemas = s } }

// New returns a relay that publishes through driver, which Run closes. It does not connect yet. It returns
// [config.Problems] for an invalid configuration, but does not check the sections of brokers, which the driver has
// read. Metrics are registered when it returns.
func New(cfg config.Config, driver sink.Driver, opts ...Option) (*Relay, error) {
	o := options{config: cfg, driver: driver}
	for _, option := range opts {
		option(&o)
	}
	if err := o.check(); err != nil && !o.unchecked {
		return nil, err
	}
	if o.log == nil {
		WithLoggerTo(logqueue.Configured(cfg))(&o)
	}
	r := assemble(o)
	if o.registerer == nil {
		return r, nil
	}
	if err := r.meter.Join(o.registerer, cfg.Service); err != nil {
		return nil, err
	}
	return r, nil
}

// Close releases the resources of a relay that is never run. Run does this itself.
func (r *Relay) Close() error {
	r.meter.Leave()
	r.closeRegistry()
	return r.driver.Close()
}

func (r *Relay) closeRegistry() {
	if r.registry != nil {
		r.registry.Close()
	}
}

// check validates the configuration, except for servers that the program reaches in its own way, and reads schemas.
func (o *options) check() error {
	problems, _ := errors.AsType[config.Problems](o.config.Validate())
	problems = slices.DeleteFunc(problems, func(p config.Problem) bool {
		return o.postgres != nil && p.Key == "postgres.url" || isOfBroker(p.Key)
	})
	if o.driver == nil {
		problems = append(problems, config.Problem{Key: "sink", What: "New got no driver"})
	}
	if o.registry == nil && o.config.Message.NeedsRegistry() {
		problems = append(problems, config.Problem{Key: "message.format",
			What: "it needs a schema registry: pass it by relay.WithRegistry"})
	}
	if o.schemas == nil {
		var err error
		if o.schemas, err = schemas.Load(o.config.Message.Schemas); err != nil {
			problems = append(problems, config.Problem{Key: "message.schemas", What: err.Error()})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}

// isOfBroker reports whether the key stands in the section of one broker.
func isOfBroker(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return slices.Contains([]string{"kafka", "nats", "rabbitmq", "redis", "bullmq", "webhook", "sqs", "sns",
		"eventbridge"}, section)
}
