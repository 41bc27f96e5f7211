package db

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// A field of a binary row or an element of a binary array: its length and its value.

// AppendInt4 appends an integer as a field.
func AppendInt4(b []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(v))
}

// AppendInt8 appends a bigint as a field.
func AppendInt8(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
}

// AppendText appends a text as a field.
func AppendText(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// AppendBool appends a boolean as a field.
func AppendBool(b []byte, v bool) []byte {
	b = binary.BigEndian.AppendUint32(b, 1)
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Params are the parameters of a statement in wire form. Arrays of a batch are built without an allocation per row.
type Params struct {
	Values  [][]byte
	OIDs    []uint32
	Formats []int16
}

// The formats of a parameter.
const (
	TextFormat   = 0
	BinaryFormat = 1
)

// Add adds a parameter of any type.
func (p *Params) Add(oid uint32, format int16, value []byte) *Params {
	p.Values, p.OIDs, p.Formats = append(p.Values, value), append(p.OIDs, oid), append(p.Formats, format)
	return p
}

// Int4 adds an integer.
func (p *Params) Int4(v int32) *Params {
	return p.Add(pgtype.Int4OID, BinaryFormat, binary.BigEndian.AppendUint32(nil, uint32(v)))
}

// Int8 adds a bigint.
func (p *Params) Int8(v int64) *Params {
	return p.Add(pgtype.Int8OID, BinaryFormat, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// Int8s adds an array of n numbers.
func (p *Params) Int8s(n int, number func(i int) int64) *Params {
	b := ArrayHeader(make([]byte, 0, ArrayHeaderSize+n*(4+8)), pgtype.Int8OID, n)
	for i := range n {
		b = AppendInt8(b, number(i))
	}
	return p.Add(pgtype.Int8ArrayOID, BinaryFormat, b)
}

// Boolean adds a boolean.
func (p *Params) Boolean(v bool) *Params {
	b := []byte{0}
	if v {
		b[0] = 1
	}
	return p.Add(pgtype.BoolOID, BinaryFormat, b)
}

// Text adds a text.
func (p *Params) Text(v string) *Params { return p.Add(pgtype.TextOID, TextFormat, []byte(v)) }

// ArrayHeader begins a one-dimensional array without nulls in binary form (array_recv in Postgres's arrayfuncs.c).
func ArrayHeader(b []byte, element uint32, n int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, 0) // no nulls
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // lower bound
}

// ArrayHeaderSize is the length of what ArrayHeader appends for an array that is not empty, in bytes.
const ArrayHeaderSize = 20
