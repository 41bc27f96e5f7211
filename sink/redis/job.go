package redis

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	sourceHeader     = "x-outbox-source"
	errorClassHeader = "x-outbox-error-class"
)

// jobSize is the approximate size of a job in a request, without the record's bytes.
const jobSize = 512

// sizeOfJob estimates the record's size in a request: characters that JSON must escape take more.
func sizeOfJob(r *sink.Record) int {
	return len(r.Key) + len(r.Value) + len(r.Headers.Block()) + jobSize
}

// fill fills in a template: {key} is the record's key, another name the header.
func fill(template string, r *sink.Record) string {
	var b strings.Builder
	for {
		literal, after, found := strings.Cut(template, "{")
		b.WriteString(literal)
		if !found {
			return b.String()
		}
		name, behind, _ := strings.Cut(after, "}")
		if name == "key" {
			b.Write(r.Key)
		} else if value, there := r.Headers.Get(name); there {
			b.Write(value)
		}
		template = behind
	}
}

var escapeID = strings.NewReplacer("%", "%25", ":", "%3A")

// idBefore comes before ids that the libraries, or the queue's own keys, have a meaning for.
const idBefore = "id-"

// jobID is the job's id for the event's, different for each. One that is empty is that of the position.
func jobID(event string, position int64) string {
	switch {
	case event == "":
		return "position-" + strconv.FormatInt(position, 10)
	case strings.HasPrefix(event, idBefore), strings.HasPrefix(event, "position-"),
		!strings.ContainsAny(event, "0123456789"), strings.Trim(event, "-0123456789") == "":
		event = idBefore + event
	}
	return escapeID.Replace(event)
}

// job is the data of the record's job, and its options with the id.
func (c *BullMQConfig) job(opening []byte, id string, r *sink.Record) (data, options []byte) {
	text, encoding := payload(r.Value)
	if c.Event != nil {
		options = append(append(options, opening...), `"jobId":`...)
		return c.Event.append(nil, text, encoding, r), append(appendText(options, []byte(id)), '}')
	}
	return text, appendOptions(nil, opening, id, encoding, r)
}

// payload is the record's value in JSON, and how it is encoded: a value that is JSON stands as it is; other text is a
// string, encoding text; other bytes are one in base64, encoding base64; none, a tombstone, is null, encoding
// tombstone.
func payload(value []byte) (text []byte, encoding string) {
	switch {
	case value == nil:
		return []byte("null"), "tombstone"
	case json.Valid(value):
		return value, ""
	case utf8.Valid(value):
		return appendText(nil, value), "text"
	}
	return appendText(nil, base64.StdEncoding.AppendEncode(nil, value)), "base64"
}

// append appends the object: the parts of the event, its payload, and what other headers the record has.
func (e *JobEvent) append(b, payload []byte, encoding string, r *sink.Record) []byte {
	parts := [...]struct{ name, header string }{
		{"id", e.ID}, {"event_type", e.EventType}, {"aggregate_type", e.AggregateType}, {"created_at", e.CreatedAt},
	}
	b = append(b, '{')
	for _, part := range parts {
		if value, there := r.Headers.Get(part.header); there {
			b = append(append(append(b, '"'), part.name...), `":`...)
			b = append(appendValue(b, value), ',')
		}
	}
	b = append(appendText(b, []byte(e.Key)), ':')
	b = append(appendValue(b, r.Key), ',')
	if encoding != "" {
		b = append(append(append(b, `"encoding":"`...), encoding...), `",`...)
	}
	b = append(append(append(b, `"payload":`...), payload...), `,"headers":`...)
	b = appendHeaders(b, r, func(name string) bool {
		return slices.ContainsFunc(parts[:], func(part struct{ name, header string }) bool { return part.header == name })
	})
	return append(b, '}')
}

// appendOptions appends the job's options: the opening, the id, and as outbox what the record has besides its value.
func appendOptions(b, opening []byte, id, encoding string, r *sink.Record) []byte {
	b = append(append(b, opening...), `"jobId":`...)
	b = append(appendText(b, []byte(id)), `,"outbox":{`...)
	if encoding != "" {
		b = append(append(append(b, `"encoding":"`...), encoding...), `",`...)
	}
	if r.Key != nil {
		b = append(appendValue(append(b, `"key":`...), r.Key), ',')
	}
	b = append(b, `"headers":`...)
	b = appendHeaders(b, r, func(string) bool { return false })
	return append(b, "}}"...)
}

// appendHeaders appends the record's headers as an object, without those that are elsewhere.
func appendHeaders(b []byte, r *sink.Record, elsewhere func(name string) bool) []byte {
	b = append(b, '{')
	first := true
	for name, value := range r.Headers.All() {
		if elsewhere(name) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(b, []byte(name)), ':')
		b = appendValue(b, value)
	}
	return append(b, '}')
}

// appendValue appends a string, null, or what is no text as {"base64": "…"}.
func appendValue(b, value []byte) []byte {
	switch {
	case value == nil:
		return append(b, "null"...)
	case utf8.Valid(value):
		return appendText(b, value)
	}
	b = append(b, `{"base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, value), `"}`...)
}

// appendText appends a string of JSON.
func appendText(b, text []byte) []byte {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(string(text)) // a string always has a form
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// note is the stored trace of a job, to be read back.
type note struct {
	Mark       []byte
	ID         []byte // of the event
	Source     []byte
	ErrorClass []byte
}

func (c *BullMQConfig) note(r *sink.Record) []byte {
	mark := markOfJob(r)
	n := note{Mark: mark[:]}
	n.ID, _ = r.Headers.Get(c.IDHeader)
	n.Source, _ = r.Headers.Get(sourceHeader)
	n.ErrorClass, _ = r.Headers.Get(errorClassHeader)
	text, _ := json.Marshal(n) // bytes always have a form
	return text
}

// markOfJob identifies a record by what does not differ between two relays that send the same event.
func markOfJob(r *sink.Record) conditional.Mark {
	digest := conditional.NewDigest()
	digest.Add(r.Key)
	digest.Add(r.Value)
	for name, value := range r.Headers.All() {
		digest.AddHeader(name, value)
	}
	return digest.Mark()
}
