package decoder

import (
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// The kinds of a column's value in a TupleData.
const (
	valueNull      = 'n'
	valueUnchanged = 'u' // a TOASTed value that an update did not touch; never in an insert
	valueText      = 't'
	valueSkipped   = 'x' // package replication's: a value that it has not kept, as it is too large
)

// tupleStart is the offset of an insert's TupleData.
const tupleStart = 6

// insert reads Byte1('I') Int32(OID) Byte1('N') TupleData.
func (d *Decoder) insert(data []byte, ev *outbox.Event) (Message, error) {
	if !d.inTransaction {
		return Message{}, d.malformed(data, 0, "insert outside a transaction")
	}
	r := reader{data: data, off: 1}
	oid := r.uint32()
	if r.uint8() != 'N' {
		r.fail("insert without a new row")
	}
	unchanged := d.tuple(&r)
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	b := d.last
	if b == nil || b.oid != oid {
		if b = d.relations[oid]; b == nil {
			return Message{}, d.unknownRelation(data, oid)
		}
		d.last = b
	}
	if len(d.values) != b.count {
		return Message{}, d.malformed(data, tupleStart,
			fmt.Sprintf("row of %d columns for relation %d, which has %d", len(d.values), oid, b.count))
	}
	if unchanged != 0 {
		return Message{}, d.malformed(data, unchanged, "insert with an unchanged TOAST value")
	}
	if b.foreign {
		return Message{Kind: Ignored, Wire: wireInsert, OID: oid, Foreign: true}, nil
	}
	if err := d.fill(b, data, ev); err != nil {
		return Message{}, err
	}
	return Message{Kind: Insert, Wire: wireInsert, OID: oid}, nil
}

// fill puts the values that tuple read into ev.
func (d *Decoder) fill(b *binding, data []byte, ev *outbox.Event) error {
	if d.values[b.id] == nil {
		return &RowError{Table: b.name, Column: d.columns.ID, LSN: d.commitLSN, Index: b.rows.take(d.begun),
			Why: "is NULL, so the event has no identity; publish only tables whose id column is NOT NULL"}
	}
	for _, column := range b.bytea {
		value := d.values[column]
		if value == nil {
			continue
		}
		n, bad := unhex(value)
		if bad >= 0 {
			return d.malformed(data, valueOffset(data, column)+bad,
				`bytea value is not of the form \x and pairs of hexadecimal digits (is bytea_output hex?)`)
		}
		d.values[column] = value[:n:n]
	}
	ev.ID = d.values[b.id]
	ev.EventType = d.values[b.eventType]
	ev.Payload = d.values[b.payload]
	ev.AggregateType, ev.AggregateID, ev.Headers, ev.CreatedAt = nil, nil, nil, nil
	if b.aggregateType != noColumn {
		ev.AggregateType = d.values[b.aggregateType]
	}
	if b.aggregateID != noColumn {
		ev.AggregateID = d.values[b.aggregateID]
	}
	if b.headers != noColumn {
		ev.Headers = d.values[b.headers]
	}
	if b.createdAt != noColumn {
		ev.CreatedAt = d.values[b.createdAt]
		if d.created != nil {
			outbox.ToUTC(ev.CreatedAt, d.created)
		}
	}
	ev.Oversize = 0
	if d.skipped > 0 {
		ev.Oversize = d.skipped + int64(len(data))
	}
	ev.Seq = 0
	if b.seq != noColumn {
		ev.Seq = whole(d.values[b.seq])
	}
	ev.Extra = ev.Extra[:0]
	for _, column := range b.extra {
		ev.Extra = append(ev.Extra, d.values[column])
	}
	ev.Position.Table = false
	ev.Position.Order = uint64(d.commitLSN)
	ev.Position.Index = b.rows.take(d.begun)
	ev.Source = b.source
	return nil
}

// whole is a positive number, or 0 for whatever else.
func whole(text []byte) (n int64) {
	if len(text) > 18 {
		return 0
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = 10*n + int64(c-'0')
	}
	return n
}

// tuple reads Int16(number of columns), then per column Byte1('n'), Byte1('u') or Byte1('t') Int32(length)
// Byten(value), into d.values. It returns where the first 'u' stands, or 0 when there is none. (A fourth kind, 'b',
// comes only with the option binary, which a relay that reads text must not set.)
func (d *Decoder) tuple(r *reader) (unchanged int) {
	d.skipped = 0
	count := int(r.uint16())
	values := d.values[:0]
	data, off := r.data, r.off // locals: this loop is most of what decoding a row costs
	for range count {
		if r.fault != "" {
			break
		}
		if off == len(data) {
			r.fail("message is cut")
			break
		}
		kind := data[off]
		off++
		switch kind {
		case valueText:
			if len(data)-off < 4 {
				r.fail("message is cut")
				break
			}
			n := int64(binary.BigEndian.Uint32(data[off:]))
			off += 4
			if n > int64(len(data)-off) {
				r.fail("message is cut")
				break
			}
			end := off + int(n)
			values = append(values, data[off:end:end])
			off = end
		case valueSkipped:
			if len(data)-off < 4 {
				r.fail("message is cut")
				break
			}
			d.skipped += int64(binary.BigEndian.Uint32(data[off:]))
			off += 4
			values = append(values, nil)
		case valueNull:
			values = append(values, nil)
		case valueUnchanged:
			if unchanged == 0 {
				unchanged = off - 1
			}
			values = append(values, nil)
		default:
			off--
			r.fail(fmt.Sprintf("column value of unknown kind %q", kind))
		}
	}
	r.off = off
	d.values = values
	return unchanged
}

// valueOffset returns the offset of a column's text in a valid insert.
func valueOffset(data []byte, column int) int {
	off := tupleStart + 2
	for range column {
		switch data[off] {
		case valueText:
			off += 4 + int(binary.BigEndian.Uint32(data[off+1:]))
		case valueSkipped:
			off += 4
		}
		off++
	}
	return off + 1 + 4
}

// unhex decodes `\x` and pairs of hexadecimal digits in place: the n bytes stand at the beginning of b. bad is the
// index of what is wrong, or -1; b is then partly overwritten.
func unhex(b []byte) (n, bad int) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return 0, 0
	}
	if len(b)%2 != 0 {
		return 0, len(b) - 1
	}
	for i := 2; i < len(b); i += 2 {
		high, low := hexValue[b[i]], hexValue[b[i+1]]
		if high > 15 {
			return 0, i
		}
		if low > 15 {
			return 0, i + 1
		}
		b[n] = high<<4 | low
		n++
	}
	return n, -1
}

// hexValue maps a hexadecimal digit to its value and everything else to 255.
var hexValue = func() (table [256]byte) {
	for c := range table {
		switch {
		case c >= '0' && c <= '9':
			table[c] = byte(c - '0')
		case c >= 'a' && c <= 'f':
			table[c] = byte(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			table[c] = byte(c - 'A' + 10)
		default:
			table[c] = 255
		}
	}
	return table
}()
