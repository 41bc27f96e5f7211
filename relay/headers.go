package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// reservedPrefix marks the headers that only the relay may set.
const reservedPrefix = "x-outbox-"

// sourceHeader says which relay's table an event is from: <system id>/<timeline>/<source>.
const sourceHeader = reservedPrefix + "source"

// headers builds the record's header block: the relay's names, the row's own headers, the x-outbox- ones.
func (r *router) headers(d *delivery) *sink.Reason {
	e := &d.event
	r.reserve(arenaSpare)
	h := outbox.HeadersIn(r.arena[len(r.arena):])
	r.columnHeaders(&h, e, d.dated)
	var scratch [64]byte
	if e.Headers != nil {
		if err := r.rowHeaders(&h, e.Headers); err != nil {
			return permanent("INVALID_HEADERS", err.Error())
		}
	}
	h.Add("x-outbox-position", e.Position.AppendText(scratch[:0]))
	h.Add(sourceHeader, r.source)
	h.Add("x-outbox-epoch", r.epoch)
	if d.attempts > 0 {
		h.Add("x-outbox-retry", strconv.AppendInt(scratch[:0], int64(d.attempts)+1, 10))
	}
	if d.replay {
		h.Add("x-outbox-replay", []byte("1"))
	}
	if d.late {
		h.Add("x-outbox-late", []byte("1"))
	}
	r.claim(h.Block())
	d.record.Headers = h
	return nil
}

// columnHeaders adds what the row's columns say, under the relay's names. Dated: created_at is a time.
func (r *router) columnHeaders(h *outbox.Headers, e *outbox.Event, dated bool) {
	var scratch [64]byte
	cloudEvent := r.format.name == config.FormatCloudEvents
	h.Add(r.names[0], e.ID)
	if e.EventType != nil {
		h.Add(r.names[1], e.EventType)
	}
	if e.AggregateType != nil {
		h.Add(r.names[2], e.AggregateType)
	}
	if cloudEvent {
		r.format.cloudEvent(h, e)
	}
	if e.CreatedAt != nil {
		if t, ok := rfc3339(scratch[:0], e.CreatedAt, dated); ok {
			h.Add(r.names[3], t)
		} else if !cloudEvent { // whose time must be one
			h.Add(r.names[3], e.CreatedAt)
		}
	}
	for _, a := range r.added {
		if v := a.column.of(e); v != nil {
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

var errHeadersForm = errors.New("the headers column must hold a JSON object whose values are strings, such as {\"traceparent\": \"00-…\"}")

// owns says whether a row may not set the header. Readers of CloudEvents compare names without case.
func (r *router) owns(key string) bool {
	if r.format.name == config.FormatCloudEvents && slices.ContainsFunc(r.reserved, func(own string) bool { return strings.EqualFold(own, key) }) {
		return true
	}
	return slices.Contains(r.reserved, key) || strings.HasPrefix(strings.ToLower(key), reservedPrefix)
}

// rowHeaders adds the row's own headers. The relay's names win over the row's, counted.
func (r *router) rowHeaders(h *outbox.Headers, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errHeadersForm
	}
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
			return fmt.Errorf("%w; the value of %.64q is none", errHeadersForm, key)
		}
		if r.owns(key) {
			r.shadowed()
			continue
		}
		h.Add(key, []byte(v))
	}
	// A text column may hold anything: an object that is cut, or one with something behind it.
	if _, err := dec.Token(); err != nil {
		return errHeadersForm
	}
	if _, err := dec.Token(); err != io.EOF {
		return errHeadersForm
	}
	return nil
}
