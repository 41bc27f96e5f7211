package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// reservedPrefix marks the headers that only the relay may set.
const reservedPrefix = "x-outbox-"

// sourceHeader says which relay's table an event is from: <system id>/<timeline>/<source>.
const sourceHeader = reservedPrefix + "source"

// positionHeader has the event's place in its lane's order; lateHeader says that it does not stand at its place.
const (
	positionHeader = reservedPrefix + "position"
	lateHeader     = reservedPrefix + "late"
)

// headers builds the record's header block: the relay's names, the row's own headers, the x-outbox- ones.
func (x *Encoder) headers(e *outbox.Event, rec *sink.Record, m Marks, dated bool) *sink.Reason {
	h := outbox.HeadersIn(x.arena.reserve(arenaSpare))
	x.columnHeaders(&h, e, dated)
	var scratch [64]byte
	if e.Headers != nil {
		if !utf8.Valid(e.Headers) {
			return permanent("INVALID_ENCODING", "the headers are not valid UTF-8, as JSON is; the database's encoding is "+
				"SQL_ASCII, which holds bytes of any encoding: have the producer write UTF-8")
		}
		if err := x.rowHeaders(&h, e.Headers); err != nil {
			return permanent("INVALID_HEADERS", err.Error())
		}
	}
	h.Add(positionHeader, e.Position.AppendText(scratch[:0]))
	h.Add(sourceHeader, x.source)
	h.Add("x-outbox-epoch", x.epoch)
	if m.Attempts > 0 {
		h.Add("x-outbox-retry", strconv.AppendInt(scratch[:0], int64(m.Attempts)+1, 10))
	}
	if m.Replay {
		h.Add("x-outbox-replay", []byte("1"))
	}
	if m.Late {
		h.Add(lateHeader, []byte("1"))
	}
	x.arena.claim(h.Block())
	rec.Headers = h
	return nil
}

// columnHeaders adds what the row's columns say, under the relay's names. Dated: created_at is a time.
func (x *Encoder) columnHeaders(h *outbox.Headers, e *outbox.Event, dated bool) {
	var scratch [64]byte
	h.Add(x.names[0], e.ID)
	if e.EventType != nil {
		h.Add(x.names[1], e.EventType)
	}
	if e.AggregateType != nil {
		h.Add(x.names[2], e.AggregateType)
	}
	if x.format.name == config.FormatCloudEvents {
		x.format.cloudEvent(h, e)
	}
	if e.CreatedAt != nil {
		if t, ok := rfc3339(scratch[:0], e.CreatedAt, dated); ok { // else a reader that parses it would stumble
			h.Add(x.names[3], t)
		}
	}
	for _, a := range x.added {
		if v := a.of(e); v != nil {
			h.Add(a.name, v)
		}
	}
}

// rfc3339 turns Postgres's "2026-11-21 16:36:32.123456+00" into "2026-11-21T16:36:32.123456Z". False: it has another
// form ("infinity", a text column), in which case it is not dated, or a year that RFC 3339 cannot say.
func rfc3339(b, stamp []byte, dated bool) ([]byte, bool) {
	const year = 4 // digits
	if !dated || stamp[year] != '-' {
		return nil, false
	}
	for _, zone := range []string{"+00:00", "+00", "Z"} {
		if bytes.HasSuffix(stamp, []byte(zone)) {
			stamp = stamp[:len(stamp)-len(zone)]
			break
		}
	}
	b = append(b, stamp...)
	b[bytes.IndexByte(b, ' ')] = 'T'
	return append(b, 'Z'), true
}

var errHeadersForm = errors.New(
	`the headers column must hold a JSON object whose values are strings, such as {"traceparent": "00-…"}`)

// owns reports whether a row may not set the header: to the receiver, it would be one of the relay's.
func (x *Encoder) owns(key string) bool {
	key = x.receivers.fold(key)
	return slices.Contains(x.reserved, key) || strings.HasPrefix(strings.ToLower(key), reservedPrefix)
}

// eventIDHeader is the name under which RabbitMQ's messages have the id besides the property message-id.
const eventIDHeader = "x-event-id"

// receivers is how the receivers of the sink's messages compare names of headers.
type receivers uint8

const (
	exact   receivers = iota
	caseOff           // clients of NATS and readers of CloudEvents differ in whether they tell capitals apart
	likeWeb           // web servers do not, nor do many of them tell "-" from "_"
)

func receiversOf(sink, format string) receivers {
	switch {
	case sink == config.SinkWebhook:
		return likeWeb
	case sink == config.SinkNATS, format == config.FormatCloudEvents:
		return caseOff
	}
	return exact
}

// fold gives names that are the same to the receivers one form.
func (r receivers) fold(name string) string {
	switch r {
	case caseOff:
		return strings.ToLower(name)
	case likeWeb:
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	return name
}

func wrongValue(key string, value json.Token) error {
	return fmt.Errorf("%w; the value of %.64q is %s: have the producer write it as a string, or leave it out",
		errHeadersForm, key, kindOf(value))
}

// kindOf names a JSON value that is no string.
func kindOf(value json.Token) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	}
	return "an object or a list"
}

// rowHeaders adds the row's own headers, each name once: of one that the object has twice the last value counts, as it
// does in jsonb. The relay's names win over the row's, counted.
func (x *Encoder) rowHeaders(h *outbox.Headers, text []byte) error {
	var is bool
	x.plain, is = plainObject(x.plain[:0], text)
	defer clear(x.plain) // they would keep the event's memory
	if !is || repeats(x.plain) {
		return x.anyHeaders(h, text)
	}
	for n := 0; n < len(x.plain); n += 2 {
		x.rowHeader(h, string(x.plain[n]), x.plain[n+1])
	}
	return nil
}

// repeats reports whether two of the few pairs have one name.
func repeats(pairs [][]byte) bool {
	for n := 2; n < len(pairs); n += 2 {
		for m := 0; m < n; m += 2 {
			if bytes.Equal(pairs[n], pairs[m]) {
				return true
			}
		}
	}
	return false
}

func (x *Encoder) rowHeader(h *outbox.Headers, key string, value []byte) {
	if x.owns(key) {
		x.hooks.Shadowed()
		return
	}
	h.Add(key, value)
}

// anyHeaders is rowHeaders of any text.
func (x *Encoder) anyHeaders(h *outbox.Headers, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errHeadersForm
	}
	var names, values []string
	last := map[string]int{} // where each name is the last time
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return errHeadersForm
		}
		value, err := dec.Token()
		if err != nil {
			return errHeadersForm
		}
		key := name.(string) // the decoder allows nothing else as a name
		v, ok := value.(string)
		if !ok {
			return wrongValue(key, value)
		}
		last[key] = len(names)
		names, values = append(names, key), append(values, v)
	}
	// A text column may hold anything: an object that is cut, or one with something behind it.
	if _, err := dec.Token(); err != nil {
		return errHeadersForm
	}
	if _, err := dec.Token(); err != io.EOF {
		return errHeadersForm
	}
	for n, name := range names {
		if last[name] == n {
			x.rowHeader(h, name, []byte(values[n]))
		}
	}
	return nil
}
