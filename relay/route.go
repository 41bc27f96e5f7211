package relay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// topicsCached bounds the cache of rendered topics: event data chooses them.
const topicsCached = 10_000

// router turns an event into a record: topic, key, value, headers. One goroutine uses it.
type router struct {
	topic, key templateParts
	createdAt  bool   // the record's timestamp is created_at, not the time of publishing
	maxBytes   int    // limits.max_event_bytes; 0: the topic's limit
	dlq        string // dlq.topic, which is for copies of dead letters only
	format     format
	names      [4]string     // of the headers for id, event type, aggregate type, created_at
	added      []addedHeader // columns that message.headers adds
	reserved   []string      // the relay's own header names, as configured
	shadowed   func()        // counts row headers that the relay's own replaced

	source, epoch []byte // header values, constant in a session

	topics    map[string]topicEntry
	scratch   []byte              // of renderTopic
	announced map[string]struct{} // topics that the state knows records of ours to be in
	fresh     []string            // topics to be announced before the next record is sent
	arena     []byte              // headers and composed keys are placed here, in chunks
	mark      []byte              // arena as it was before the last route
	now       time.Time
	created   struct { // the last created_at that was read
		text []byte
		at   time.Time
		err  error
	}
}

type addedHeader struct {
	column field
	name   string
}

type topicEntry struct {
	name   string
	reason *sink.Reason
}

// field is a column of the event: one of the named ones, or firstExtra + index into Event.Extra.
type field int

const (
	fieldID field = iota
	fieldAggregateType
	fieldAggregateID
	fieldEventType
	fieldCreatedAt
	fieldPayload
	fieldHeaders
	firstExtra
)

func (f field) of(e *outbox.Event) []byte {
	switch f {
	case fieldID:
		return e.ID
	case fieldAggregateType:
		return e.AggregateType
	case fieldAggregateID:
		return e.AggregateID
	case fieldEventType:
		return e.EventType
	case fieldCreatedAt:
		return e.CreatedAt
	case fieldPayload:
		return e.Payload
	case fieldHeaders:
		return e.Headers
	}
	return e.Extra[f-firstExtra]
}

// templateParts is a compiled template: literal, column, literal, column, … literal.
type templateParts struct {
	literals []string
	fields   []field
}

// single is the column when the template is just one column, so that its bytes can be used as they are.
func (t templateParts) single() (field, bool) {
	if len(t.fields) == 1 && t.literals[0] == "" && t.literals[1] == "" {
		return t.fields[0], true
	}
	return 0, false
}

// columnsOf lists the table's columns that make up an event, with the further ones that templates and headers name.
// In a template a name means the event's own field first (aggregate_type, whatever its column is called), then a column.
func columnsOf(c config.Config) outbox.Columns {
	m := c.Outbox.Columns
	cols := outbox.Columns{
		ID: m.ID, AggregateType: m.AggregateType, AggregateID: m.AggregateID, EventType: m.EventType,
		Payload: m.Payload, Headers: m.Headers, CreatedAt: m.CreatedAt,
	}
	want := append(templateNames(c.Message.Topic), templateNames(c.Message.Key)...)
	for name := range c.Message.Headers {
		want = append(want, name)
	}
	slices.Sort(want)
	for _, name := range slices.Compact(want) {
		if _, known := namedField(name, cols); !known {
			cols.Extra = append(cols.Extra, name)
		}
	}
	return cols
}

func namedField(name string, cols outbox.Columns) (field, bool) {
	logical := []string{"id", "aggregate_type", "aggregate_id", "event_type", "created_at", "payload", "headers"}
	actual := []string{cols.ID, cols.AggregateType, cols.AggregateID, cols.EventType, cols.CreatedAt, cols.Payload, cols.Headers}
	for i, n := range logical {
		if n == name && actual[i] != "" {
			return field(i), true
		}
	}
	if i := slices.Index(actual, name); i >= 0 && name != "" {
		return field(i), true
	}
	if i := slices.Index(cols.Extra, name); i >= 0 {
		return firstExtra + field(i), true
	}
	return 0, false
}

// templateNames are the columns that a template names; config has checked its form.
func templateNames(template string) (names []string) {
	parts, _ := config.ParseTemplate(template)
	for _, p := range parts {
		if p.Column != "" {
			names = append(names, p.Column)
		}
	}
	return names
}

// fixedTopic is the topic of a template that names no column; none of one that does.
func fixedTopic(template string) []string {
	if len(templateNames(template)) > 0 {
		return nil
	}
	parts, err := config.ParseTemplate(template)
	topic := ""
	for _, p := range parts {
		topic += p.Literal
	}
	if err != nil || topic == "" {
		return nil
	}
	return []string{topic}
}

func compile(template string, cols outbox.Columns) (t templateParts, err error) {
	parts, err := config.ParseTemplate(template)
	if err != nil {
		return t, err
	}
	literal := ""
	for _, p := range parts {
		if p.Column == "" {
			literal += p.Literal
			continue
		}
		f, known := namedField(p.Column, cols)
		if !known {
			return t, fmt.Errorf("template %q: no column for {%s}", template, p.Column)
		}
		t.fields, t.literals, literal = append(t.fields, f), append(t.literals, literal), ""
	}
	t.literals = append(t.literals, literal)
	return t, nil
}

// newRouter compiles the configuration's templates. The type of the payload column is one that store.Outbox names.
func newRouter(c config.Config, cols outbox.Columns, payloadType string, shadowed func()) (*router, error) {
	r := &router{
		createdAt: c.Message.Timestamp == config.TimestampCreatedAt, maxBytes: int(c.Limits.MaxEventBytes), dlq: c.DLQ.Topic,
		names: c.Message.HeaderNames(), shadowed: shadowed, topics: map[string]topicEntry{}, announced: map[string]struct{}{},
	}
	var err error
	if r.format, err = newFormat(c, payloadType); err != nil {
		return nil, err
	}
	if r.topic, err = compile(c.Message.Topic, cols); err != nil {
		return nil, fmt.Errorf("message.topic: %w", err)
	}
	if r.key, err = compile(c.Message.Key, cols); err != nil {
		return nil, fmt.Errorf("message.key: %w", err)
	}
	r.reserved = append(r.reserved, r.names[:]...)
	if r.format.name == config.FormatCloudEvents {
		r.reserved = config.CloudEventHeaders()
	}
	for column, name := range c.Message.Headers {
		if slices.Contains(config.StandardHeaders[:], column) {
			continue
		}
		f, known := namedField(column, cols)
		if !known {
			return nil, fmt.Errorf("message.headers: no column %q", column)
		}
		r.added = append(r.added, addedHeader{f, name})
		r.reserved = append(r.reserved, name)
	}
	slices.SortFunc(r.added, func(a, b addedHeader) int { return strings.Compare(a.name, b.name) })
	return r, nil
}

// begin sets what is constant in a session.
func (r *router) begin(source string, epoch int64) {
	r.source, r.epoch = []byte(source), fmt.Append(nil, epoch)
}

// parseCreated reads created_at, which the events of one transaction mostly share.
func (r *router) parseCreated(text []byte) (time.Time, error) {
	if r.created.text == nil || !bytes.Equal(text, r.created.text) {
		r.created.text = append(r.created.text[:0], text...)
		r.created.at, r.created.err = outbox.ParseTimestamp(text)
	}
	return r.created.at, r.created.err
}

// route fills the delivery's record from its event. A reason says that the event cannot be a message at all.
func (r *router) route(d *delivery) *sink.Reason {
	e, rec := &d.event, &d.record
	rec.Owner, r.mark = d, r.arena
	rec.Key = r.renderKey(e)
	var reason *sink.Reason
	if rec.Topic, reason = r.renderTopic(e); reason != nil {
		return reason
	}
	rec.Timestamp = r.now.UnixMilli()
	d.dated = false
	if e.CreatedAt != nil {
		t, err := r.parseCreated(e.CreatedAt)
		d.dated, d.created = err == nil, t.UnixMicro()
		if r.createdAt && err != nil {
			return permanent("INVALID_CREATED_AT", "message.timestamp is created_at and this event's cannot be used: "+err.Error())
		}
		if r.createdAt {
			rec.Timestamp = t.UnixMilli()
		}
	}
	if rec.Value, reason = r.value(e); reason != nil {
		return reason
	}
	if reason = r.headers(d); reason != nil {
		return reason
	}
	size := len(rec.Key) + len(rec.Value) + len(rec.Headers.Block())
	if r.maxBytes > 0 && size > r.maxBytes {
		return permanent("MESSAGE_TOO_LARGE", fmt.Sprintf("the event has %d bytes of key, value and headers; limits.max_event_bytes is %d", size, r.maxBytes))
	}
	held := size + len(e.ID) + len(e.AggregateType) + len(e.EventType)
	if r.format.name == config.FormatEnvelope {
		held += len(e.Payload) // the value holds a copy
	}
	rec.Cost = cost(held)
	return nil
}

// deliveryCost is the memory of a delivery beside its event's bytes: itself and its places in batches and journal jobs.
const deliveryCost = 720

// cost is what an event that holds so many bytes takes of the window: as much again as it holds is for its copy in a request
// and for garbage that is not collected yet. So the window is what the events add to the process, not just what is alive.
func cost(held int) int { return 2 * (deliveryCost + held) }

func permanent(code, text string) *sink.Reason {
	return &sink.Reason{Class: outbox.Permanent, Code: code, Text: text}
}

// renderTopic gives the event's topic. The same name is always the same string, so that comparing two is cheap.
func (r *router) renderTopic(e *outbox.Event) (string, *sink.Reason) {
	var cacheKey []byte
	if len(r.topic.fields) == 0 {
		cacheKey = nil
	} else if len(r.topic.fields) == 1 {
		cacheKey = r.topic.fields[0].of(e)
	} else {
		r.scratch = r.render(r.scratch[:0], r.topic, e)
		cacheKey = r.scratch
	}
	if t, ok := r.topics[string(cacheKey)]; ok {
		return t.name, t.reason
	}
	t := topicEntry{name: string(r.render(nil, r.topic, e))}
	why := illegalTopic(t.name)
	if why == "" && t.name == r.dlq {
		why = "is dlq.topic, where only copies of dead letters go"
	}
	if why != "" {
		t = topicEntry{reason: permanent("INVALID_TOPIC", fmt.Sprintf("the event chooses the topic %.260q, which %s", t.name, why))}
	}
	if len(r.topics) >= topicsCached {
		clear(r.topics)
	}
	if _, known := r.announced[t.name]; !known && t.reason == nil && !slices.Contains(r.fresh, t.name) {
		r.fresh = append(r.fresh, t.name)
	}
	r.topics[string(cacheKey)] = t
	return t.name, t.reason
}

func illegalTopic(name string) string {
	switch {
	case name == "" || len(name) > 249:
		return "must have 1 to 249 characters"
	case name == "." || name == "..":
		return "must not be . or .."
	case strings.HasPrefix(name, "__"):
		return "must not begin with __ (the broker's own topics)"
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "may have only a-z, A-Z, 0-9, dot, underscore and hyphen"
		}
	}
	return ""
}

// renderKey is nil, a keyless event, when all that the key is made of is NULL or empty.
func (r *router) renderKey(e *outbox.Event) []byte {
	if f, ok := r.key.single(); ok {
		if key := f.of(e); len(key) > 0 {
			return key
		}
		return nil
	}
	for _, f := range r.key.fields {
		if len(f.of(e)) > 0 {
			return r.place(func(b []byte) []byte { return r.render(b, r.key, e) })
		}
	}
	if len(r.key.fields) == 0 && r.key.literals[0] != "" {
		return []byte(r.key.literals[0])
	}
	return nil
}

func (r *router) render(b []byte, t templateParts, e *outbox.Event) []byte {
	for i, f := range t.fields {
		b = append(b, t.literals[i]...)
		b = append(b, f.of(e)...)
	}
	return append(b, t.literals[len(t.fields)]...)
}

// place lets build append into the arena and cuts off what it made.
func (r *router) place(build func([]byte) []byte) []byte { return r.placeUpTo(arenaSpare, build) }

// placeUpTo is place for about size bytes. What is large gets memory of its own: it would leave much of a chunk unused,
// and one event that stays long would hold all of it.
func (r *router) placeUpTo(size int, build func([]byte) []byte) []byte {
	if size > arenaLarge {
		b := build(make([]byte, 0, size))
		return b[:len(b):len(b)]
	}
	r.reserve(size)
	b := build(r.arena[len(r.arena):])
	r.claim(b)
	return b[:len(b):len(b)]
}

const (
	arenaSize  = 32 << 10
	arenaSpare = 512 // less than this left: begin a new chunk rather than let appends move
	arenaLarge = 4 << 10
)

func (r *router) reserve(size int) {
	if cap(r.arena)-len(r.arena) < max(size, arenaSpare) {
		r.arena = make([]byte, 0, arenaSize)
	}
}

// claim takes what was built at the arena's end out of its free space. What outgrew the chunk moved away by itself.
func (r *router) claim(b []byte) {
	if len(b) <= cap(r.arena)-len(r.arena) {
		r.arena = r.arena[:len(r.arena)+len(b)]
	}
}
