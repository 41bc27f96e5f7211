package registry

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// append reads the payload as JSON and writes it by the schema. Programs write JSON in which a union's value
// stands as it is; Avro's own encoding of JSON, in which it may be {"branch": value}, is taken, too.
func (s *avroSchema) append(dst []byte, record string, payload []byte) ([]byte, error) {
	root := s.root
	if record != "" && root.kind == "union" {
		branch, of := root.branch(record)
		if root = of; root == nil {
			return dst, lacksRecord(record)
		}
		dst = appendLong(dst, int64(branch))
	}
	if record != "" && root.name != record {
		return dst, lacksRecord(record)
	}
	if excess := schemas.Measure(payload).Oversize(); excess != "" {
		return dst, &wrong{what: excess}
	}
	reader := json.NewDecoder(bytes.NewReader(payload))
	reader.UseNumber()
	var value any
	if err := reader.Decode(&value); err != nil {
		return dst, &wrong{what: "it is not JSON"}
	}
	if _, err := reader.Token(); !errors.Is(err, io.EOF) {
		return dst, &wrong{what: "something follows the JSON"}
	}
	var effort schemas.Effort
	effort.Begin()
	out, bad := root.append(dst, value, &effort)
	if bad != nil {
		return dst, bad
	}
	return out, nil
}

func lacksRecord(record string) error {
	return &Lack{What: fmt.Sprintf("its schema has no record %.200q", record),
		Fix: "register a version that has it, or correct registry.record"}
}

// inside is the same mistake seen from around it.
func (w *wrong) inside(name string) *wrong {
	w.at = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name) + w.at
	if len(w.at) > placeMost {
		w.at = w.at[:placeMost]
	}
	return w
}

// placeMost bounds the place in a reason, in bytes.
const placeMost = 256

func (t *avroType) unfit(value any) *wrong {
	want := t.kind
	if t.logical != "" {
		want += " (" + t.logical + ")"
	}
	return &wrong{what: "expected " + want + ", got " + kindOf(value)}
}

// kindOf names the type of a JSON value.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// append writes the value; dst is good only without an error. Unions of records that refer to themselves can take time
// that is exponential in the depth of the payload, so each value is a step of the effort.
func (t *avroType) append(dst []byte, value any, effort *schemas.Effort) ([]byte, *wrong) {
	effort.Step()
	switch t.kind {
	case "record":
		return t.appendRecord(dst, value, effort)
	case "union":
		return t.appendUnion(dst, value, effort)
	case "array":
		if list, is := value.([]any); is {
			return t.appendArray(dst, list, effort)
		}
	case "map":
		if object, is := value.(map[string]any); is {
			return t.appendMap(dst, object, effort)
		}
	case "enum":
		if text, is := value.(string); is {
			if at, has := t.symbols[text]; has {
				return appendLong(dst, at), nil
			}
		}
	default:
		if out, ok := t.appendSimple(dst, value); ok {
			return out, nil
		}
	}
	return dst, t.unfit(value)
}

func (t *avroType) appendRecord(dst []byte, value any, effort *schemas.Effort) ([]byte, *wrong) {
	object, is := value.(map[string]any)
	if !is {
		return dst, t.unfit(value)
	}
	taken := 0
	for i := range t.fields {
		f := &t.fields[i]
		member, has := object[f.name]
		switch {
		case has:
			var bad *wrong
			if dst, bad = f.typ.append(dst, member, effort); bad != nil {
				return dst, bad.inside(f.name)
			}
			taken++
		case f.absent == nil:
			return dst, &wrong{what: fmt.Sprintf("it lacks %.64q, which has no default", f.name)}
		default:
			dst = append(dst, f.absent...)
		}
	}
	if taken == len(object) {
		return dst, nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if _, known := t.fieldAt[name]; !known {
			return dst, &wrong{what: fmt.Sprintf("it has %.64q, which the schema lacks", name)}
		}
	}
	return dst, nil
}

// appendUnion writes the branch that the value names, {"branch": value}, or else the first that it fits.
func (t *avroType) appendUnion(dst []byte, value any, effort *schemas.Effort) ([]byte, *wrong) {
	if object, is := value.(map[string]any); is && len(object) == 1 {
		for name, inner := range object {
			at, branch := t.branch(name)
			if branch == nil || branch.kind == "null" {
				break
			}
			if out, bad := branch.append(appendLong(dst, int64(at)), inner, effort); bad == nil {
				return out, nil
			}
		}
	}
	var reasons []*wrong
	for i, branch := range t.branches {
		if (value == nil) != (branch.kind == "null") {
			continue
		}
		out, bad := branch.append(appendLong(dst, int64(i)), value, effort)
		if bad == nil {
			return out, nil
		}
		reasons = append(reasons, bad)
	}
	if len(reasons) == 1 {
		return dst, reasons[0]
	}
	return dst, &wrong{what: "no branch of the union takes a " + kindOf(value)}
}

func (t *avroType) appendArray(dst []byte, list []any, effort *schemas.Effort) ([]byte, *wrong) {
	if len(list) > 0 {
		dst = appendLong(dst, int64(len(list)))
	}
	for i, item := range list {
		var bad *wrong
		if dst, bad = t.element.append(dst, item, effort); bad != nil {
			return dst, bad.inside(strconv.Itoa(i))
		}
	}
	return append(dst, 0), nil
}

// appendMap writes the members by name, so that the same event is the same bytes whenever it is sent.
func (t *avroType) appendMap(dst []byte, object map[string]any, effort *schemas.Effort) ([]byte, *wrong) {
	if len(object) > 0 {
		dst = appendLong(dst, int64(len(object)))
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		var bad *wrong
		if dst, bad = t.element.append(appendBytes(dst, name), object[name], effort); bad != nil {
			return dst, bad.inside(name)
		}
	}
	return append(dst, 0), nil
}

// appendSimple writes a primitive or a fixed; not ok: the value is none.
func (t *avroType) appendSimple(dst []byte, value any) (out []byte, ok bool) {
	switch t.kind {
	case "null":
		return dst, value == nil
	case "boolean":
		is, ok := value.(bool)
		if is {
			return append(dst, 1), ok
		}
		return append(dst, 0), ok
	case "int", "long":
		n, ok := t.whole(value)
		return appendLong(dst, n), ok
	case "float":
		f, ok := number(value, 32)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), ok
	case "double":
		f, ok := number(value, 64)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), ok
	case "string":
		text, ok := value.(string)
		return appendBytes(dst, text), ok && (t.logical != "uuid" || isUUID(text))
	case "bytes":
		b, ok := t.binary(value)
		return appendBytes(dst, b), ok
	}
	b, ok := t.binary(value)
	return append(dst, b...), ok && len(b) == t.size
}

// appendLong writes an int or a long: a varint in zig-zag.
func appendLong(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func appendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	return append(appendLong(dst, int64(len(b))), b...)
}
