package aws

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Names of attributes besides the record's headers.
const (
	keyAttribute       = "x-outbox-key"
	tombstoneAttribute = "x-outbox-tombstone"
	encodingAttribute  = "x-outbox-encoding" // of the body
	headersAttribute   = "x-outbox-headers"  // a JSON object of the headers that are no attribute of their own
)

const (
	positionHeader = "x-outbox-position"
	sourceHeader   = "x-outbox-source"
	traceHeader    = "traceparent"

	// maxID is the most characters of a deduplication or group id.
	maxID = 128
	// maxAttributeName is the most characters of an attribute's name.
	maxAttributeName = 256
)

// messageAttribute is a message attribute: text, or bytes where those are not nil.
type messageAttribute struct {
	Name, Text string
	Bytes      []byte
}

// Size is the attribute's size in bytes as SQS and SNS count it: name, type and value.
func (a messageAttribute) Size() int {
	if a.Bytes != nil {
		return len(a.Name) + len("Binary") + len(a.Bytes)
	}
	return len(a.Name) + len("String") + len(a.Text)
}

// attributesOf returns the record's headers and key as message attributes. SQS and SNS take ten, so only the headers
// that identify an event and its trace get one each; the rest go into one JSON object. The first names are the headers
// for id, event type, aggregate type and created_at.
func attributesOf(r *sink.Record, first [4]string) (list []messageAttribute) {
	list = make([]messageAttribute, 0, maxEntries)
	var rest object
	add := func(name string, value []byte) {
		if a := attribute(name, value); a.Name != "" {
			list = append(list, a)
		} else {
			rest.add(name, value)
		}
	}
	for name, value := range r.Headers.All() {
		switch {
		case slices.Contains(first[:], name), name == positionHeader, name == sourceHeader, name == traceHeader:
			add(name, value)
		default:
			rest.add(name, value)
		}
	}
	if r.Key != nil {
		if a := attribute(keyAttribute, r.Key); a.Name != "" {
			list = append(list, a)
		} else if len(r.Key) > 0 {
			list = append(list, messageAttribute{Name: keyAttribute, Bytes: r.Key})
		} else {
			rest.add(keyAttribute, r.Key)
		}
	}
	if !rest.empty() {
		list = append(list, messageAttribute{Name: headersAttribute, Text: rest.text()})
	}
	return list
}

// message is a record as SQS and SNS have it.
type message struct {
	Body       string
	Attributes []messageAttribute
}

// messageOf is the record as a message, without the ids of FIFO.
func messageOf(r *sink.Record, first [4]string) (m message) {
	m.Attributes = attributesOf(r, first)
	var note *messageAttribute
	if m.Body, note = bodyOf(r.Value); note != nil {
		m.Attributes = append(m.Attributes, *note)
	}
	return m
}

// Size is the message's size in bytes, as the services count it.
func (m message) Size() int {
	size := len(m.Body)
	for _, a := range m.Attributes {
		size += a.Size()
	}
	return size
}

// attribute is one of that name and value, or the zero value if neither service takes it.
func attribute(name string, value []byte) messageAttribute {
	lower := strings.ToLower(name)
	if len(value) == 0 || !isText(value) || !attributeName(name) ||
		strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return messageAttribute{}
	}
	return messageAttribute{Name: name, Text: string(value)}
}

// attributeName reports whether the services take the name: letters, digits, underscores and hyphens, and single dots
// in between.
func attributeName(name string) bool {
	dot := true // before this character, or the beginning
	for _, c := range []byte(name) {
		switch {
		case c == '.' && !dot:
			dot = true
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			dot = false
		default:
			return false
		}
	}
	return !dot && len(name) <= maxAttributeName
}

// bodyOf is the value as the text of a message, which has one character at least and none that XML 1.0 lacks, and the
// attribute that says what is not as it seems.
func bodyOf(value []byte) (text string, note *messageAttribute) {
	switch {
	case value == nil:
		return "null", &messageAttribute{Name: tombstoneAttribute, Text: "true"}
	case len(value) == 0:
		return "empty", &messageAttribute{Name: encodingAttribute, Text: "empty"}
	case !isText(value):
		return base64.StdEncoding.EncodeToString(value), &messageAttribute{Name: encodingAttribute, Text: "base64"}
	}
	return string(value), nil
}

// isText reports whether a message can carry the value as it is: UTF-8 of the characters of XML 1.0 (SQS API Reference,
// SendMessage).
func isText(value []byte) bool {
	for len(value) > 0 {
		c := value[0]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			value = value[1:]
			continue
		}
		r, n := utf8.DecodeRune(value)
		if r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			return false
		}
		value = value[n:]
	}
	return true
}

// object is a JSON object that is being written.
type object struct{ b bytes.Buffer }

func (o *object) empty() bool { return o.b.Len() == 0 }

// add adds a header. A value that is not text is an object of its bytes in base64.
func (o *object) add(name string, value []byte) {
	if o.empty() {
		o.b.WriteByte('{')
	} else {
		o.b.WriteByte(',')
	}
	o.quote(name)
	o.b.WriteByte(':')
	switch {
	case value == nil:
		o.b.WriteString("null")
	case isText(value):
		o.quote(string(value))
	default:
		o.b.WriteString(`{"base64":"` + base64.StdEncoding.EncodeToString(value) + `"}`)
	}
}

func (o *object) quote(text string) {
	e := json.NewEncoder(&o.b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text)          // of a string, into memory
	o.b.Truncate(o.b.Len() - 1) // a line end
}

// noncharacters are escaped in JSON: XML lacks them.
var noncharacters = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// text is the object, in which no character is left that XML lacks.
func (o *object) text() string {
	o.b.WriteByte('}')
	return noncharacters.Replace(o.b.String())
}

// headersOf are the record's headers and its key as a JSON object.
func headersOf(r *sink.Record) string {
	var o object
	for name, value := range r.Headers.All() {
		o.add(name, value)
	}
	if r.Key != nil {
		o.add(keyAttribute, r.Key)
	}
	if r.Value == nil {
		o.add(tombstoneAttribute, []byte("true"))
	}
	if o.empty() {
		return "{}"
	}
	return o.text()
}

// groupOf is the message group of a record: its key, so that what has a key stays in order. Records without one have a
// group each.
func groupOf(r *sink.Record, idHeader string) string {
	if r.Key == nil {
		return deduplicationOf(r, idHeader)
	}
	return fit(string(r.Key))
}

// deduplicationOf is the id by which a FIFO queue or topic recognizes the event: <id>/<source>/<position>. The id alone
// would have it drop, silently, another event with the same id within five minutes: an application that uses ids again,
// or the tables of two relays that number their rows.
func deduplicationOf(r *sink.Record, idHeader string) string {
	return fit(identity(r, idHeader))
}

func (c options) identity(r *sink.Record) string { return identity(r, c.IDHeader) }

// identity identifies the record among all others, across restarts. It uses only the random number at the end of the
// source header, because the server's identifier and timeline change in a failover.
func identity(r *sink.Record, idHeader string) string {
	id, position, source := "", "", ""
	for name, value := range r.Headers.All() {
		switch name {
		case idHeader:
			id = string(value)
		case positionHeader:
			position = string(value)
		case sourceHeader:
			source = string(value[bytes.LastIndexByte(value, '/')+1:])
		}
	}
	if id == "" || position == "" {
		return digest([]byte(r.Topic), r.Key, r.Headers.Block(), r.Value)
	}
	return id + "/" + source + "/" + position
}

// fit is the text as an id: alphanumeric characters and punctuation of ASCII, at most 128. What is not such is hashed.
func fit(text string) string {
	plain := len(text) > 0 && len(text) <= maxID
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] > ' ' && text[i] < 0x7f
	}
	if plain {
		return text
	}
	return digest([]byte(text))
}

func digest(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(sum, "%d ", len(part))
		_, _ = sum.Write(part)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// nameOf is a topic as a name of SQS or SNS, which have no dots: hyphens stand in their places. A FIFO name ends in
// .fifo; with standard only that of a topic that ends so.
func nameOf(topic string, standard bool) (name string, fifo bool) {
	bare := strings.TrimSuffix(topic, fifoSuffix)
	name, fifo = strings.ReplaceAll(bare, ".", "-"), !standard || bare != topic
	if fifo {
		name += fifoSuffix
	}
	return name, fifo
}

const fifoSuffix = ".fifo"

// tooLong is why no destination can have the name, nil if one can.
func tooLong(kind, name string, most int) *sink.Reason {
	if len(name) <= most {
		return nil
	}
	return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_TOPIC",
		Text: fmt.Sprintf("the %s %.300q would have a name of %d characters, AWS takes %d", kind, name, len(name), most)}
}
