// Package message makes the message of an event: its topic, key, value and headers, as the configuration's templates
// and format say, and the copy of a dead letter for dlq.topic. It does no I/O and knows no session: who sends a
// message, in which order, and what becomes of it, is not its concern. The schemas of a registry it gets from package
// registry, which asks for them beside it.
//
// An Encoder belongs to one goroutine. Encode allocates nothing for an event whose topic it has seen; what it builds
// lies in an arena, out of which Keep moves it into memory that the caller keeps from event to event.
//
// Its tests make whole messages, by each format, and compare bytes.
package message

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Encoder turns events into records: topic, key, value, headers. One goroutine uses it.
type Encoder struct {
	topic, key template
	aggregate  [2]template // of the aggregate's type and id, where they are composed of columns; see compose
	createdAt  bool        // the record's timestamp is created_at, not the time of publishing
	maxBytes   int         // limits.max_event_bytes; 0: the topic's limit
	format     format
	registered registered    // in the formats that need a registry
	names      [4]string     // of the headers for id, event type, aggregate type, created_at
	added      []addedHeader // columns that message.headers adds
	reserved   []string      // the relay's own header names, as configured and as the receiver compares them
	receivers  receivers
	hooks      Hooks

	source, epoch []byte // header values, constant in a session

	topics  topics
	arena   arena    // of headers and composed keys
	plain   [][]byte // of the row whose headers are read; kept for its memory
	now     time.Time
	created struct { // the last created_at that was read
		text []byte
		at   time.Time
		err  error
	}
}

type addedHeader struct {
	column   field
	name     string
	constant []byte // nil: it is the column's
}

func (a addedHeader) of(e *outbox.Event) []byte {
	if a.constant != nil {
		return a.constant
	}
	return a.column.of(e)
}

// Hooks are the callbacks of an encoder.
type Hooks struct {
	Shadowed func() // called for each header of a row that the relay's own replaces
	// Misfit gives why a payload does not fit what is expected of its event type, "" if it does. nil: nothing is.
	Misfit func(eventType, payload []byte) string
	// Panicked is called when an event's message could not be made because of a mistake in the program or in a library.
	// nil: they are not reported.
	Panicked func(id []byte, value any, stack []byte)
	// Names are the topics that rows have named; nil: any number, for who sends nothing.
	Names *Names
	// Schemas makes values in the formats that need a registry; nil: they have none, for who wants topics and keys.
	Schemas Registry
}

// New compiles the configuration's templates for a table with these columns. The type of the payload column is jsonb,
// json, text or bytea.
func New(c config.Config, cols outbox.Columns, payloadType string, hooks Hooks) (*Encoder, error) {
	x := &Encoder{
		createdAt: c.Message.Timestamp == config.TimestampCreatedAt, maxBytes: int(c.Limits.MaxEventBytes),
		names: c.Message.HeaderNames(), hooks: hooks,
		topics: topics{forCopies: c.DLQ.Matcher(), subjects: c.Sink == config.SinkNATS, rendered: map[string]topicEntry{},
			names: hooks.Names},
	}
	var err error
	if x.format, err = newFormat(c, payloadType); err != nil {
		return nil, err
	}
	if x.topic, err = compile(c.Message.Topic, cols, namedField); err != nil {
		return nil, fmt.Errorf("message.topic: %w", err)
	}
	if x.key, err = compile(c.Message.Key, cols, namedField); err != nil {
		return nil, fmt.Errorf("message.key: %w", err)
	}
	if x.topics.copies, err = compile(c.DLQ.Topic, cols, copyField); err != nil {
		return nil, fmt.Errorf("dlq.topic: %w", err)
	}
	for i, text := range []string{c.Outbox.Columns.AggregateType, c.Outbox.Columns.AggregateID} {
		if x.aggregate[i], err = compileAggregate(text, cols); err != nil {
			return nil, fmt.Errorf("outbox.columns.%s: %w", config.AggregateFields[i], err)
		}
	}
	if x.registered, err = newRegistered(c, cols); err != nil {
		return nil, err
	}
	x.reserved = append(x.reserved, x.names[:]...)
	if x.format.name == config.FormatCloudEvents {
		x.reserved = config.CloudEventHeaders()
	}
	for column, name := range c.Message.Headers {
		if slices.Contains(config.StandardHeaders[:], column) {
			continue
		}
		text, constant := cols.Constants[column]
		f, known := namedField(column, cols)
		if !known && !constant {
			return nil, fmt.Errorf("message.headers: no column %q", column)
		}
		added := addedHeader{column: f, name: name}
		if constant {
			added.constant = []byte(text)
		}
		x.added = append(x.added, added)
		x.reserved = append(x.reserved, name)
	}
	switch c.Sink {
	case config.SinkRabbitMQ, config.SinkRabbitMQStream:
		x.reserved = append(x.reserved, eventIDHeader)
	}
	x.receivers = receiversOf(c.Sink, x.format.name)
	for i, name := range x.reserved {
		x.reserved[i] = x.receivers.fold(name)
	}
	slices.SortFunc(x.added, func(a, b addedHeader) int { return strings.Compare(a.name, b.name) })
	return x, nil
}

// Begin sets what is constant in a session: the values of the headers x-outbox-source and x-outbox-epoch.
func (x *Encoder) Begin(source string, epoch int64) {
	x.source, x.epoch = []byte(source), fmt.Append(nil, epoch)
}

// At sets the time at which the next events are published.
func (x *Encoder) At(now time.Time) { x.now = now }

// Now returns the time set by At.
func (x *Encoder) Now() time.Time { return x.now }

// StampsCreatedAt reports whether the timestamp of a record is its event's created_at, and not the time of publishing.
func (x *Encoder) StampsCreatedAt() bool { return x.createdAt }

// TailHeaders are the headers by which a start recognises the relay's own records in a topic: of the event's id, of
// its source, of what only a copy of a dead letter has, of its position, and of what only a late event has.
func (x *Encoder) TailHeaders() [sink.TailHeaders]string {
	return [sink.TailHeaders]string{x.names[fieldID], sourceHeader, errorClassHeader, positionHeader, lateHeader}
}

// Marks are the facts about an event that its row does not have.
type Marks struct {
	Attempts int  // spent so far by a parked event; more than 0: x-outbox-retry
	Replay   bool // it was a dead letter: x-outbox-replay
	Late     bool // the stream has not delivered it in its place: x-outbox-late
}

// Encode fills the record from the event, all but its owner. Created is created_at in microseconds since the Unix
// epoch; not dated: it could not be read. A reason says that the event cannot be a message at all.
//
// The content of one event never ends the process: a panic below is that event's reason.
func (x *Encoder) Encode(e *outbox.Event, rec *sink.Record, m Marks) (created int64, dated bool, reason *sink.Reason) {
	defer func() {
		if value := recover(); value != nil {
			reason = x.recovered(e.ID, value)
		}
	}()
	return x.encode(e, rec, m)
}

func (x *Encoder) encode(e *outbox.Event, rec *sink.Record, m Marks) (created int64, dated bool, reason *sink.Reason) {
	x.arena.begin()
	x.compose(e)
	rec.Source, rec.Key = e.Source, x.renderKey(e)
	rec.Topic, reason = x.renderTopic(e)
	if e.Oversize > 0 {
		return 0, false, x.oversize(e)
	}
	if reason != nil {
		return 0, false, reason
	}
	if len(e.ID) > outbox.MaxID {
		return 0, false, permanent("INVALID_ID", fmt.Sprintf("the id has %d bytes, and the journal of what was published "+
			"holds ids of at most %d; discard this dead letter, and insert the event again under a shorter id",
			len(e.ID), outbox.MaxID))
	}
	rec.Timestamp = x.now.UnixMilli()
	if e.CreatedAt != nil {
		t, err := x.parseCreated(e.CreatedAt)
		created, dated = t.UnixMicro(), err == nil
		if x.createdAt && err != nil {
			return created, dated, permanent("INVALID_CREATED_AT",
				"message.timestamp is created_at and this event's cannot be used: "+err.Error())
		}
		if x.createdAt {
			rec.Timestamp = t.UnixMilli()
		}
	}
	if x.hooks.Misfit != nil {
		if why := x.hooks.Misfit(e.EventType, e.Payload); why != "" {
			return created, dated, permanent("INVALID_PAYLOAD", why)
		}
	}
	if rec.Value, reason = x.value(e, rec.Topic); reason != nil {
		return created, dated, reason
	}
	rec.JSON = rec.Value != nil && x.format.isJSON && !x.registered.on
	if reason = x.headers(e, rec, m, dated); reason != nil {
		return created, dated, reason
	}
	size := len(rec.Key) + len(rec.Value) + len(rec.Headers.Block())
	if x.maxBytes > 0 && size > x.maxBytes {
		return created, dated, permanent("MESSAGE_TOO_LARGE", fmt.Sprintf(
			"the event has %d bytes of key, value and headers; limits.max_event_bytes is %d", size, x.maxBytes))
	}
	held := size + len(e.ID) + len(e.AggregateType) + len(e.EventType)
	if x.format.builds {
		held += len(e.Payload) // the value is beside it
	}
	rec.Cost = Cost(held)
	return created, dated, nil
}

// parseCreated reads created_at, which the events of one transaction mostly share.
func (x *Encoder) parseCreated(text []byte) (time.Time, error) {
	if x.created.text == nil || !bytes.Equal(text, x.created.text) {
		x.created.text = append(x.created.text[:0], text...)
		x.created.at, x.created.err = outbox.ParseTimestamp(text)
	}
	return x.created.at, x.created.err
}

// Overhead is the memory that an event takes beside its bytes: its delivery, its places in batches and journal jobs,
// and its share of what else goes with a full window, such as buffers and holes between objects, as measured.
const Overhead = 1000

// Cost returns how much of the window an event of that size takes: the same again for its copy in a
// request and for uncollected garbage. So the window counts what events add to the process, not just
// live memory.
func Cost(held int) int { return 2 * (Overhead + held) }

func permanent(code, text string) *sink.Reason {
	return &sink.Reason{Class: outbox.Permanent, Code: code, Text: text}
}

// renderKey is nil, a keyless event, when all that the key is made of is NULL or empty.
func (x *Encoder) renderKey(e *outbox.Event) []byte {
	if f, ok := x.key.single(); ok {
		if key := f.of(e); len(key) > 0 {
			return key
		}
		return nil
	}
	if x.key.anyOf(e) {
		return x.arena.place(func(b []byte) []byte { return x.render(b, x.key, e) })
	}
	if len(x.key.fields) == 0 && x.key.literals[0] != "" {
		return []byte(x.key.literals[0])
	}
	return nil
}

func (x *Encoder) render(b []byte, t template, e *outbox.Event) []byte {
	for i, f := range t.fields {
		b = append(b, t.literals[i]...)
		b = append(b, f.of(e)...)
	}
	return append(b, t.literals[len(t.fields)]...)
}

// compose gives the event the type and id of its aggregate where the table has no columns for them, but others to
// compose them of. An event that was parked, or a dead letter, has those that it had. Nothing to compose of is NULL.
func (x *Encoder) compose(e *outbox.Event) {
	for i, into := range [...]*[]byte{&e.AggregateType, &e.AggregateID} {
		if *into == nil && x.aggregate[i].anyOf(e) {
			*into = x.arena.place(func(b []byte) []byte { return x.render(b, x.aggregate[i], e) })
		}
	}
}

// Route gives topic and key of an event that is not to be sent now. Why it cannot be a message is said when its turn
// comes.
func (x *Encoder) Route(e *outbox.Event, now time.Time) (topic string, key []byte) {
	var rec sink.Record
	x.At(now)
	_, _, _ = x.Encode(e, &rec, Marks{})
	return rec.Topic, rec.Key
}
