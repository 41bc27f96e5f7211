package relay

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/drivers"
	"github.com/cdc-relay/cdc-relay/logqueue"
	"github.com/cdc-relay/cdc-relay/registry"
	"github.com/cdc-relay/cdc-relay/relay/internal/logs"
	"github.com/cdc-relay/cdc-relay/schemas"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file is the way in for Go programs: what New takes. It touches nothing of a relay that runs.

// options is what a relay is made of.
type options struct {
	config     config.Config
	driver     sink.Driver
	log        *zerolog.Logger
	lines      *logqueue.Writer // that log writes to; nil: not known
	version    string
	postgres   Postgres
	tracer     Tracer
	registerer prometheus.Registerer
	out        io.Writer
	schemas    *schemas.Set
	registry   *registry.Registry // of the formats that need one
	begun      func()
	unchecked  bool // of tests: rounds may follow each other faster than Validate allows
}

// Option changes a default of [New].
type Option func(*options)

// WithLogger logs to l; by default the relay logs to standard error, as the section log of the configuration says. The
// relay waits for l, and events with it: give it a writer that never blocks, such as a [logqueue.Writer].
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.log, o.lines = &l, nil } }

// WithLoggerTo logs to l, which writes to lines. The relay counts the lines that were dropped, and flushes the rest
// when Run ends.
func WithLoggerTo(l zerolog.Logger, lines *logqueue.Writer) Option {
	return func(o *options) { o.log, o.lines = &l, lines }
}

// WithSlog logs to l, which decides about the level. The relay never waits for l.
func WithSlog(l *slog.Logger) Option { return WithLoggerTo(logs.To(l)) }

// WithRegisterer registers the relay's metrics with r, too, until Run has ended; [Relay.Registry] has them in any
// case. The metrics of the process and of Go are left to the program.
func WithRegisterer(r prometheus.Registerer) Option { return func(o *options) { o.registerer = r } }

// WithDriver publishes through d, which Run closes; by default the relay makes the driver of the configuration's sink.
func WithDriver(d sink.Driver) Option { return func(o *options) { o.driver = d } }

// WithTracer tells t of each attempt to publish an event.
func WithTracer(t Tracer) Option { return func(o *options) { o.tracer = t } }

// WithVersion sets the version that Status and metrics show.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithPostgres connects through p; by default the relay connects to the servers that the configuration names.
func WithPostgres(p Postgres) Option { return func(o *options) { o.postgres = p } }

// WithSchemas holds payloads to s, for who has compiled it; by default, and for nil, New compiles message.schemas.
func WithSchemas(s *schemas.Set) Option { return func(o *options) { o.schemas = s } }

// WithBegun calls f once, when the start is over: the relay streams, or stands by. It must not block.
func WithBegun(f func()) Option { return func(o *options) { o.begun = f } }

// WithOutput is where the sink stdout prints messages; by default standard output.
func WithOutput(w io.Writer) Option { return func(o *options) { o.out = w } }

// New makes a relay that has connected to nothing yet. It returns [config.Problems] for a configuration that is not
// valid. Metrics are registered when it returns.
func New(cfg config.Config, opts ...Option) (*Relay, error) {
	o := options{config: cfg, out: os.Stdout}
	for _, option := range opts {
		option(&o)
	}
	if err := o.check(); err != nil && !o.unchecked {
		return nil, err
	}
	if o.log == nil {
		WithLoggerTo(logs.New(cfg))(&o)
	}
	var err error
	if o.registry, err = registry.Open(cfg, *o.log); err != nil {
		return nil, err
	}
	if o.driver == nil {
		if o.driver, err = drivers.New(cfg, *o.log, o.out); err != nil {
			return nil, fmt.Errorf("make the sink: %w", err)
		}
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

// Close releases what New made, for a relay that is never run; Run does this itself.
func (r *Relay) Close() error {
	r.meter.Leave()
	r.registry.Close()
	return r.driver.Close()
}

// check leaves out what the configuration says of servers that the program reaches in its own way, and reads schemas.
func (o *options) check() error {
	problems, _ := errors.AsType[config.Problems](o.config.Validate())
	problems = slices.DeleteFunc(problems, func(p config.Problem) bool {
		return o.postgres != nil && p.Key == "postgres.url" || o.driver != nil && strings.HasPrefix(p.Key, "kafka.")
	})
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
