// Package registry makes values of JSON by the schemas of a schema registry, in Confluent's wire format: a zero byte,
// the schema's id in four bytes, and the value as Avro, as Protobuf behind the indexes of its message, or as the JSON
// that was given. It asks the registry for a subject's schema once, keeps it, and asks for a newer one in the
// background; no value waits for that, and none is made by a guess. What becomes of a value that cannot be made is not
// its concern.
//
// Tested on a registry (test/registry), and here against one that misbehaves.
package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/retry"
)

const (
	// lackTTL is the time after which a subject without a usable schema is looked up again.
	lackTTL = 5 * time.Second
	// retryEvery is the least time between two questions that fail, in the background.
	retryEvery = 2 * time.Second
	// askersMost bounds the subjects that are looked up at a time.
	askersMost = 8
)

// waitBackoff are the pauses of Await while the registry cannot be asked.
var waitBackoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2}

// Lack reports that a subject has no usable schema, by the registry's answer: the events that need it wait
// until it has.
type Lack struct {
	Subject string
	What    string // what is missing or wrong
	Fix     string // what to do

	unregistered bool // a file has the schema
}

// Error names the subject, what it lacks and what to do.
func (l *Lack) Error() string {
	subject := l.Subject
	if subject == "" {
		subject = `""`
	}
	return "subject " + subject + ": " + l.What + "; " + l.Fix
}

// Unwrap returns [schemas.ErrNoSchema].
func (l *Lack) Unwrap() error { return schemas.ErrNoSchema }

// Misfit says where and why a payload does not fit its schema, without any of its values.
type Misfit struct {
	Subject string
	Version int
	What    string
}

// Error names subject, version, place and rule.
func (m *Misfit) Error() string {
	return "the payload does not fit " + named(m.Subject, m.Version) + ": " + m.What
}

// Unwrap returns [schemas.ErrUnfit].
func (m *Misfit) Unwrap() error { return schemas.ErrUnfit }

// Registry is the schemas of one registry. Any goroutine may use it.
type Registry struct {
	c      config.Registry
	format format
	client *client
	life   context.Context
	end    context.CancelFunc
	askers sync.WaitGroup
	turn   chan struct{} // of askersMost
	log    zerolog.Logger

	mu      sync.Mutex
	entries map[string]*entry // by subject
}

// entry caches a subject's schema. Registry.mu guards it.
type entry struct {
	schema *schema // nil: none
	lack   *Lack   // why there is none; nil: there is one, or the registry could not be asked yet
	short  bool    // the schema lacks a record that an event is
	err    error   // why it could not be asked at last; nil: it could
	asked  time.Time
	asking chan struct{} // closed when the question under way is answered; nil: none is
}

// schema makes values by one version of a subject.
type schema struct {
	version int
	prefix  [5]byte // zero, and the id
	codec   codec
}

// codec appends a value, without the zero byte and the id. The error is a *wrong, or a *Lack for a record that the
// schema does not have.
type codec interface {
	append(dst []byte, record string, payload []byte) ([]byte, error)
}

// wrong holds the place and the reason of a mismatch.
type wrong struct{ at, what string }

func (w *wrong) Error() string {
	if w.at == "" {
		return "at / " + w.what
	}
	return "at " + w.at + " " + w.what
}

// Open makes the Registry of a configuration, which asks nothing yet; nil: its format needs none. The error is of
// [config.Problems].
func Open(c config.Config, log zerolog.Logger) (*Registry, error) {
	if !c.Message.NeedsRegistry() {
		return nil, nil
	}
	client, err := newClient(c.Registry)
	if err != nil {
		return nil, config.Problems{{Key: "registry.tls.ca_file", What: err.Error()}}
	}
	r := &Registry{c: c.Registry, format: formats[c.Message.Format], client: client, turn: make(chan struct{}, askersMost),
		log: log, entries: map[string]*entry{}}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// Close ends the questions under way.
func (r *Registry) Close() {
	if r == nil {
		return
	}
	r.end()
	r.askers.Wait()
	r.client.http.CloseIdleConnections()
}

// Has reports whether Append need not wait: the subject has a schema, or the registry has answered that it has none.
func (r *Registry) Has(subject []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[string(subject)]
	return e != nil && e.known()
}

func (e *entry) known() bool { return e.schema != nil || e.lack != nil }

// Append appends the payload's value by the subject's schema. Record is the full name of what the payload is, where the
// schema has several, or empty. The error is a *Misfit, a *Lack, or why the registry could not be asked yet; it asks
// then in the background.
func (r *Registry) Append(dst, subject, record, payload []byte) ([]byte, error) {
	s, err := r.schemaOf(subject)
	if err != nil {
		return dst, err
	}
	if !utf8.Valid(payload) {
		return dst, &Misfit{string(subject), s.version, "it is not valid UTF-8"}
	}
	out, err := s.codec.append(append(dst, s.prefix[:]...), string(record), payload)
	var lack *Lack
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &lack):
		lack.Subject = string(subject)
		r.fallsShort(lack.Subject, s)
		return dst, lack
	default:
		return dst, &Misfit{string(subject), s.version, err.Error()}
	}
}

// fallsShort has a newer version asked for soon: this one lacks a record.
func (r *Registry) fallsShort(subject string, s *schema) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[subject]; e != nil && e.schema == s {
		e.short = true
	}
}

// schemaOf is the subject's schema as it is known, which is asked for again when that is old.
func (r *Registry) schemaOf(subject []byte) (*schema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[string(subject)]
	if e == nil {
		e = r.entryOf(string(subject))
	}
	if e.asking == nil && time.Since(e.asked) > r.ttl(e) {
		r.ask(string(subject), e)
	}
	switch {
	case e.schema != nil:
		return e.schema, nil
	case e.lack != nil:
		return nil, e.lack
	case e.err != nil:
		return nil, e.err
	}
	return nil, errUnasked
}

// ttl is for how long what is known of the subject is believed.
func (r *Registry) ttl(e *entry) time.Duration {
	switch {
	case e.err != nil:
		return retryEvery
	case e.schema != nil && r.c.Version != config.LatestVersion && r.c.Files == "":
		return 100 * 365 * 24 * time.Hour // a version never changes
	case e.schema != nil && !e.short:
		return time.Duration(r.c.CacheTTL)
	case e.schema != nil:
		return min(lackTTL, time.Duration(r.c.CacheTTL))
	}
	return lackTTL
}

func (r *Registry) entryOf(subject string) *entry {
	e := r.entries[subject]
	if e == nil {
		e = &entry{}
		r.entries[subject] = e
	}
	return e
}

// Await returns when the subject is known: Has. While the registry cannot be asked, told gets the reason each time, and
// nil at the end. The error is the context's; stopped reports whether stop was closed first.
func (r *Registry) Await(ctx context.Context, stop <-chan struct{}, subject string, told func(error)) (
	stopped bool, err error,
) {
	for attempt := 1; ; attempt++ {
		known, asked := r.begin(subject)
		if !known {
			select {
			case <-asked:
			case <-stop:
				return true, nil
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		known, why := r.outcome(subject)
		if told(why); known {
			return false, nil
		}
		select {
		case <-time.After(waitBackoff.Delay(attempt, rand.Float64())):
		case <-stop:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// begin asks for the subject unless it is known; asked is closed when there is an answer.
func (r *Registry) begin(subject string) (known bool, asked <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entryOf(subject)
	if e.known() {
		return true, nil
	}
	if e.asking == nil {
		r.ask(subject, e)
	}
	return false, e.asking
}

func (r *Registry) outcome(subject string) (known bool, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[subject]
	if e.known() {
		return true, nil
	}
	return false, e.err
}

// ask asks for the subject in the background. The caller holds mu.
func (r *Registry) ask(subject string, e *entry) {
	if r.life.Err() != nil {
		return
	}
	e.asking = make(chan struct{})
	r.askers.Go(func() {
		var s *schema
		var err error
		select {
		case r.turn <- struct{}{}:
			s, err = r.fetch(r.life, subject, r.c.AutoRegister)
			<-r.turn
		case <-r.life.Done():
			err = context.Cause(r.life)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answered(subject, e, s, err)
		close(e.asking)
		e.asking, e.asked = nil, time.Now()
	})
}

// answered takes in what came of a question. What is in use stays until there is something better: a registry that is
// away, or that lost a subject, stops no event whose schema is cached. The caller holds mu.
func (r *Registry) answered(subject string, e *entry, s *schema, err error) {
	var lack *Lack
	lacks := errors.As(err, &lack)
	switch e.err = nil; {
	case err == nil:
		if was := e.schema; was != nil && was.prefix != s.prefix {
			r.log.Info().Str("subject", subject).Int("version", s.version).Int("was", was.version).
				Msg("using another version of a schema")
		}
		e.schema, e.lack, e.short = s, nil, false
	case lacks:
		if e.lack == nil || e.lack.What != lack.What {
			r.log.Warn().Str("subject", subject).Bool("another_in_use", e.schema != nil).Str("reason", lack.What).
				Str("fix", lack.Fix).Msg("no schema that can be used")
		}
		e.lack = lack
	default:
		e.err = err
	}
}

// Examine asks the registry for the subject's schema and says what it found; the error is a *Lack, or why the registry
// cannot be asked. It keeps nothing, and registers nothing.
func (r *Registry) Examine(ctx context.Context, subject string) (string, error) {
	s, err := r.fetch(ctx, subject, false)
	if lack, is := errors.AsType[*Lack](err); is && lack.unregistered && r.c.AutoRegister {
		return "it is not registered; run registers it from registry.files", nil
	}
	if err != nil {
		return "", err
	}
	return r.format.name + " schema " + idText(s.prefix) + ", version " + versionText(s.version), nil
}

// fetch gets and compiles a subject's schema. Register allows registering one that a file has.
func (r *Registry) fetch(ctx context.Context, subject string, register bool) (*schema, error) {
	found, err := r.find(ctx, subject, register)
	if err != nil {
		return nil, err
	}
	if kind := found.kind(); kind != r.format.kind {
		return nil, &Lack{subject, "its schema is of the type " + kind + ", and message.format is " + r.format.name,
			"correct registry.subject or message.format", false}
	}
	references, err := r.references(ctx, subject, found.References)
	if err != nil {
		return nil, err
	}
	c, err := r.format.compile(found.Schema, references)
	if err != nil {
		return nil, &Lack{subject, "the schema of " + named(subject, found.Version) + " cannot be compiled: " + oneLine(err),
			"register one that can", false}
	}
	s := &schema{version: found.Version, codec: c}
	binary.BigEndian.PutUint32(s.prefix[1:], uint32(found.ID))
	return s, nil
}
