package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/avro"
)

// avroType is a type of a schema, with what is needed to write a value of it.
type avroType struct {
	kind      string // record, enum, array, map, fixed, union, or a primitive's name
	logical   string
	name      string // full name of a record, enum or fixed; else the kind: what a union's branch is called
	precision int
	scale     int
	size      int // of a fixed

	fields   []avroField
	fieldAt  map[string]int
	element  *avroType // of an array or map
	branches []*avroType
	symbols  map[string]int64
}

type avroField struct {
	name   string
	typ    *avroType
	absent []byte // what stands for a missing member; nil: it must be there
}

// avroSchema writes values by one schema.
type avroSchema struct{ root *avroType }

// compileAvro has the library check the schema, which is not our own concern, and makes of it what writing needs.
func compileAvro(text string, references []reference) (codec, error) {
	var cache avro.SchemaCache
	for _, r := range references {
		if _, err := cache.Parse(r.text); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	s, err := cache.Parse(text)
	if err != nil {
		return nil, err
	}
	b := avroBuilder{named: map[string]*avroType{}}
	root, err := b.build(s.Root(), "")
	if err != nil {
		return nil, err
	}
	return &avroSchema{root}, nil
}

// avroBuilder remembers the named types of a schema, which may refer to themselves.
type avroBuilder struct{ named map[string]*avroType }

func (b *avroBuilder) build(n *avro.SchemaNode, space string) (*avroType, error) {
	t := &avroType{kind: n.Type, name: n.Type, logical: n.LogicalType, precision: n.Precision, scale: n.Scale,
		size: n.Size}
	var err error
	switch n.Type {
	case "null", "boolean", "int", "long", "float", "double", "string", "bytes":
		return t, nil
	case "array":
		t.element, err = b.build(n.Items, space)
	case "map":
		t.element, err = b.build(n.Values, space)
	case "union":
		for i := range n.Branches {
			branch, failed := b.build(&n.Branches[i], space)
			t.branches, err = append(t.branches, branch), errors.Join(err, failed)
		}
	case "record", "error", "enum", "fixed":
		if t.kind == "error" {
			t.kind = "record"
		}
		t.name, space = fullName(n)
		b.named[t.name] = t
		t.symbols = map[string]int64{}
		for i, symbol := range n.Symbols {
			t.symbols[symbol] = int64(i)
		}
		err = b.addFields(t, n, space)
	default:
		return b.resolve(n.Type, space)
	}
	return t, err
}

// resolve is a type that was named before.
func (b *avroBuilder) resolve(name, space string) (*avroType, error) {
	if t := b.named[space+"."+name]; t != nil && space != "" && !strings.Contains(name, ".") {
		return t, nil
	}
	if t := b.named[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("it refers to %q, which it does not define", name)
}

func fullName(n *avro.SchemaNode) (name, space string) {
	if at := strings.LastIndexByte(n.Name, '.'); at >= 0 {
		return n.Name, n.Name[:at]
	}
	if n.Namespace == "" {
		return n.Name, ""
	}
	return n.Namespace + "." + n.Name, n.Namespace
}

// addFields makes a record's fields. A member that is missing is the field's default, or null where that is allowed.
func (b *avroBuilder) addFields(t *avroType, n *avro.SchemaNode, space string) error {
	t.fieldAt = map[string]int{}
	for i := range n.Fields {
		f := &n.Fields[i]
		typ, err := b.build(&f.Type, space)
		if err != nil {
			return err
		}
		field := avroField{name: f.Name, typ: typ}
		if f.HasDefault {
			if field.absent, err = encodedDefault(f); err != nil {
				return fmt.Errorf("the default of the field %s: %w", f.Name, err)
			}
		} else if null := typ.null(); null >= 0 {
			field.absent = appendLong(nil, int64(null))
		}
		t.fieldAt[f.Name] = len(t.fields)
		t.fields = append(t.fields, field)
	}
	return nil
}

// encodedDefault returns the encoding of a missing member, not nil.
func encodedDefault(f *avro.SchemaField) ([]byte, error) {
	s, err := f.Type.Schema()
	if err != nil {
		return nil, err
	}
	return s.AppendEncode([]byte{}, f.Default)
}

// null returns the index of a union's null branch; -1 if there is none, or it is not a union.
func (t *avroType) null() int {
	for i, branch := range t.branches {
		if branch.kind == "null" {
			return i
		}
	}
	return -1
}

// branch is the branch of a union with this full name, or nil.
func (t *avroType) branch(name string) (int, *avroType) {
	for i, branch := range t.branches {
		if branch.name == name {
			return i, branch
		}
	}
	return -1, nil
}
