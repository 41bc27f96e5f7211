package connect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// answers are the types that kafka-go reads answers into. Their tags say which fields a version has.
var answers = map[protocol.ApiKey]any{
	protocol.ApiVersions: apiversions.Response{}, protocol.CreateTopics: createtopics.Response{},
	protocol.DescribeConfigs: describeconfigs.Response{}, protocol.Fetch: fetch.Response{},
	protocol.InitProducerId: initproducerid.Response{}, protocol.ListOffsets: listoffsets.Response{},
	protocol.Metadata: metadata.Response{}, protocol.Produce: produce.Response{},
	protocol.SaslAuthenticate: saslauthenticate.Response{}, protocol.SaslHandshake: saslhandshake.Response{},
}

// shape describes a value's form on the wire.
type shape struct {
	kind   shapeKind
	size   int      // of fixed
	fields []*shape // of a struct
	of     *shape   // of an array
	// flexible values have compact lengths, and structs a tail of tagged fields (KIP-482).
	flexible bool
}

type shapeKind uint8

const (
	fixed      shapeKind = iota
	text                 // its length in 2 bytes
	sized                // its length in 4 bytes
	arrayOf              // its count in 4 bytes
	structured           // its fields
	recordSet            // batches of records, their length in 4 bytes in front
)

type shapeKey struct {
	key     protocol.ApiKey
	version int16
}

var shapes sync.Map // by shapeKey

// shapeOf is the shape of an answer; false: not known.
func shapeOf(key protocol.ApiKey, version int16) (*shape, bool) {
	if s, found := shapes.Load(shapeKey{key, version}); found {
		return s.(*shape), true
	}
	answer, known := answers[key]
	if !known {
		return nil, false
	}
	t := reflect.TypeOf(answer)
	flexible := false
	for i := range t.NumField() {
		if f := t.Field(i); f.Name == "_" {
			in, tagged := inVersion(f.Tag.Get("kafka"), version)
			flexible = flexible || in && tagged
		}
	}
	s := makeShape(t, version, flexible)
	shapes.Store(shapeKey{key, version}, s)
	return s, true
}

func makeShape(t reflect.Type, version int16, flexible bool) *shape {
	switch {
	case t == reflect.TypeFor[protocol.RecordSet]():
		return &shape{kind: recordSet, flexible: flexible}
	case t.Kind() == reflect.String:
		return &shape{kind: text, flexible: flexible}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &shape{kind: sized, flexible: flexible}
	case t.Kind() == reflect.Slice:
		return &shape{kind: arrayOf, flexible: flexible, of: makeShape(t.Elem(), version, flexible)}
	case t.Kind() != reflect.Struct:
		return &shape{kind: fixed, size: int(t.Size())}
	}
	s := &shape{kind: structured, flexible: flexible}
	for i := range t.NumField() {
		f := t.Field(i)
		if in, tagged := inVersion(f.Tag.Get("kafka"), version); in && !tagged && f.Name != "_" {
			s.fields = append(s.fields, makeShape(f.Type, version, flexible))
		}
	}
	return s
}

// inVersion reads a tag such as min=v0,max=v8,nullable|min=v9,max=v9,tag: whether the version has the field, and
// whether it is one of those that go by their tag.
func inVersion(tag string, version int16) (in, tagged bool) {
	for one := range strings.SplitSeq(tag, "|") {
		least, most, byTag := -1, -1, false
		for option := range strings.SplitSeq(one, ",") {
			switch {
			case strings.HasPrefix(option, "min=v"):
				least, _ = strconv.Atoi(option[len("min=v"):])
			case strings.HasPrefix(option, "max=v"):
				most, _ = strconv.Atoi(option[len("max=v"):])
			case strings.HasPrefix(option, "tag"):
				byTag = true
			}
		}
		if least <= int(version) && int(version) <= most && least >= 0 {
			return true, byTag
		}
	}
	return false, false
}

var errShort = errors.New("it ends too early")

// fits reports whether the answer, from its id on, has the shape; nil if so. It allocates nothing.
func (s *shape) fits(b []byte) error {
	if len(b) < 4 {
		return errShort
	}
	b = b[4:] // the id
	if s.flexible {
		rest, err := skipTags(b)
		if err != nil {
			return err
		}
		b = rest
	}
	_, err := s.skip(b)
	return err
}

// skip passes over one value and returns what is behind it.
func (s *shape) skip(b []byte) (rest []byte, err error) {
	switch s.kind {
	case fixed:
		return take(b, s.size)
	case text, sized, recordSet:
		n, rest, err := s.length(b)
		if err != nil || n <= 0 {
			return rest, err
		}
		if s.kind == recordSet {
			err = countsFit(rest[:n])
		}
		return rest[n:], err
	case arrayOf:
		n, rest, err := s.length(b)
		for ; n > 0 && err == nil; n-- {
			if len(rest) == 0 { // also bounds a count of elements that have no bytes
				return nil, errShort
			}
			rest, err = s.of.skip(rest)
		}
		return rest, err
	}
	for _, f := range s.fields {
		if b, err = f.skip(b); err != nil {
			return nil, err
		}
	}
	if s.flexible {
		return skipTags(b)
	}
	return b, nil
}

// length reads the length or count in front of a value; -1 stands for null.
func (s *shape) length(b []byte) (n int, rest []byte, err error) {
	switch {
	case s.flexible:
		n, rest, err = uvarint(b)
		n--
	case s.kind == text:
		if rest, err = take(b, 2); err == nil {
			n = int(int16(binary.BigEndian.Uint16(b)))
		}
	default:
		if rest, err = take(b, 4); err == nil {
			n = int(int32(binary.BigEndian.Uint32(b)))
		}
	}
	if err == nil && (n < -1 || n > len(rest)) {
		err = fmt.Errorf("it names a length or count of %d, and has %d bytes left", n, len(rest))
	}
	return n, rest, err
}

func take(b []byte, n int) ([]byte, error) {
	if n < 0 || n > len(b) {
		return nil, errShort
	}
	return b[n:], nil
}

func uvarint(b []byte) (int, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > mostAnswer {
		return 0, nil, errors.New("a variable-length number in it is too long")
	}
	return int(v), b[n:], nil
}

func skipTags(b []byte) ([]byte, error) {
	count, b, err := uvarint(b)
	for ; count > 0 && err == nil; count-- {
		if _, b, err = uvarint(b); err != nil {
			return nil, err
		}
		var size int
		if size, b, err = uvarint(b); err == nil {
			b, err = take(b, size)
		}
	}
	return b, err
}
