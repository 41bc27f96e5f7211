package decoder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// fork returns a decoder that continues from the same state without touching d.
func (d *Decoder) fork() *Decoder {
	f := *d
	f.relations, f.counters = maps.Clone(d.relations), maps.Clone(d.counters)
	for source, c := range f.counters {
		own := *c
		f.counters[source] = &own
	}
	for oid, b := range f.relations {
		if b.rows != nil {
			own := *b
			own.rows, f.relations[oid] = f.counters[b.source], &own
		}
	}
	f.last, f.values = nil, nil
	return &f
}

// isOurs reports whether the error is one of those that Decode promises.
func isOurs(err error) bool {
	_, malformed := errors.AsType[*MalformedError](err)
	_, column := errors.AsType[*ColumnError](err)
	_, row := errors.AsType[*RowError](err)
	return malformed || column || row
}

// eachGolden calls f with each message that a server sent and a decoder in the state in which it came.
func eachGolden(t *testing.T, f func(g golden, i int, before *Decoder, wire []byte)) {
	t.Helper()
	for _, g := range readGoldens(t) {
		d := New(g.config)
		for i, wire := range g.wire {
			f(g, i, d.fork(), wire)
			_, _ = d.Decode(bytes.Clone(wire), &outbox.Event{})
		}
	}
}

// Catches a panic, and a cut or lengthened message that passes: the length of each part must be checked, and nothing
// may be left over. Seen to fail with a value that is cut taken as it is, and with its length not checked.
func TestMessagesCutAtAnyByteAreErrors(t *testing.T) {
	eachGolden(t, func(g golden, i int, before *Decoder, wire []byte) {
		longer := append(bytes.Clone(wire), 0)
		for n := range len(longer) + 1 {
			if n == len(wire) {
				continue
			}
			d := before.fork()
			_, err := d.Decode(longer[:n:n], &outbox.Event{})
			if _, ok := errors.AsType[*MalformedError](err); !ok {
				t.Fatalf("%s, message %d, %d of %d bytes: got %v, want a *MalformedError", g.name, i, n, len(wire), err)
			}
			if d.inTransaction != before.inTransaction || d.commitLSN != before.commitLSN ||
				!reflect.DeepEqual(d.counters, before.counters) || !reflect.DeepEqual(d.relations, before.relations) {
				t.Fatalf("%s, message %d, %d of %d bytes: the faulty message changed the decoder", g.name, i, n, len(wire))
			}
		}
	})
}

// Catches a panic, and an error of a kind that callers do not know. Many flipped bytes make another sound message, so
// that the outcome itself is left to FuzzDecode, which compares it. Seen to fail with a length read without a look at
// how many bytes are left.
func TestFlippedBytesDoNotPanic(t *testing.T) {
	eachGolden(t, func(g golden, i int, before *Decoder, wire []byte) {
		for at := range wire {
			if at > 1000 && at < len(wire)-1000 && at%997 != 0 {
				continue // inside of a large value
			}
			for _, mask := range []byte{0xFF, 0x80, 0x01} {
				data := bytes.Clone(wire)
				data[at] ^= mask
				if _, err := before.fork().Decode(data, &outbox.Event{}); err != nil && !isOurs(err) {
					t.Fatalf("%s, message %d, byte %d ^ %#x: got %T %v", g.name, i, at, mask, err, err)
				}
			}
		}
	})
}

// FuzzDecode feeds streams of messages, each with its length before it, to a decoder and to pglogrepl. Catches panics,
// and messages that this decoder takes although pglogrepl does not, or that it reads differently.
func FuzzDecode(f *testing.F) {
	c := Config{Columns: outboxColumns}
	for _, g := range readGoldens(f) {
		var stream []byte
		for _, wire := range g.wire {
			if len(wire) < 10_000 {
				stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(wire))), wire...)
			}
		}
		f.Add(stream)
		c.Tables = append(c.Tables, g.config.Tables...)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := New(c)
		var ev outbox.Event
		shapes := make(map[uint32]*Relation)
		for len(stream) >= 2 {
			n := min(int(binary.BigEndian.Uint16(stream)), len(stream)-2)
			wire := stream[2 : 2+n]
			stream = stream[2+n:]
			m, err := d.Decode(bytes.Clone(wire), &ev)
			if err != nil {
				if !isOurs(err) || m.Kind != 0 {
					t.Fatalf("%x: got %T %v with kind %v", wire, err, err, m.Kind)
				}
				_ = err.Error()
				return
			}
			if m.Kind == RelationMessage {
				shapes[m.OID] = m.Relation
			}
			if difference := compare(wire, m, &ev, shapes[m.OID]); difference != "" {
				t.Fatalf("%x: %s", wire, difference)
			}
		}
	})
}

// Catches a decoder that reads what a real server sent differently than pglogrepl does.
func TestGoldensReadAsPglogreplReadsThem(t *testing.T) {
	for _, g := range readGoldens(t) {
		d := New(g.config)
		var ev outbox.Event
		shapes := make(map[uint32]*Relation)
		for i, wire := range g.wire {
			m, err := d.Decode(bytes.Clone(wire), &ev)
			if err != nil {
				break
			}
			if m.Kind == RelationMessage {
				shapes[m.OID] = m.Relation
			}
			if difference := compare(wire, m, &ev, shapes[m.OID]); difference != "" {
				t.Errorf("%s, message %d: %s", g.name, i, difference)
			}
		}
	}
}

// compare says how the decoded message differs from what pglogrepl makes of the same bytes; "" is agreement.
func compare(wire []byte, m Message, ev *outbox.Event, shape *Relation) (difference string) {
	defer func() {
		if r := recover(); r != nil {
			difference = fmt.Sprintf("pglogrepl panics: %v", r)
		}
	}()
	parsed, err := pglogrepl.Parse(wire)
	if err != nil {
		return fmt.Sprintf("pglogrepl says %v", err)
	}
	if m.Wire != byte(parsed.Type()) {
		return fmt.Sprintf("type %c, pglogrepl says %v", m.Wire, parsed.Type())
	}
	var got, want any
	switch p := parsed.(type) {
	case *pglogrepl.BeginMessage:
		got = []any{m.Kind, m.LSN, microseconds(m.Time), m.XID}
		want = []any{Begin, outbox.LSN(p.FinalLSN), p.CommitTime, p.Xid}
	case *pglogrepl.CommitMessage:
		got = []any{m.Kind, m.LSN, m.End, microseconds(m.Time)}
		want = []any{Commit, outbox.LSN(p.CommitLSN), outbox.LSN(p.TransactionEndLSN), p.CommitTime}
	case *pglogrepl.LogicalDecodingMessage:
		got = []any{m.Kind, m.LSN, m.Transactional, string(m.Prefix), string(m.Content)}
		want = []any{LogicalMessage, outbox.LSN(p.LSN), p.Transactional, p.Prefix, string(p.Content)}
	case *pglogrepl.RelationMessage:
		r := Relation{OID: p.RelationID, Schema: p.Namespace, Name: p.RelationName}
		for _, column := range p.Columns {
			r.Columns = append(r.Columns, Column{Name: column.Name, Type: column.DataType, Key: column.Flags&1 != 0})
		}
		got, want = *m.Relation, r
	case *pglogrepl.InsertMessage:
		if m.Foreign {
			got, want = m.OID, p.RelationID
			break
		}
		got = values(ev)
		want = wantedValues(p.Tuple, shape)
	default:
		got, want = m.Kind, Ignored
	}
	if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); g != w {
		return fmt.Sprintf("got %s, pglogrepl says %s", g, w)
	}
	return ""
}

// microseconds goes the way of pglogrepl, whose nanoseconds overflow some 292 years from 1970.
func microseconds(sinceUnixEpoch int64) time.Time { return time.Unix(0, sinceUnixEpoch*1000) }

func values(ev *outbox.Event) [][]byte {
	return [][]byte{ev.ID, ev.AggregateType, ev.AggregateID, ev.EventType, ev.Payload, ev.Headers, ev.CreatedAt}
}

// wantedValues picks the event's columns from the tuple, by name.
func wantedValues(tuple *pglogrepl.TupleData, shape *Relation) [][]byte {
	var wanted [][]byte
	c := outboxColumns
	for _, name := range []string{c.ID, c.AggregateType, c.AggregateID, c.EventType, c.Payload, c.Headers, c.CreatedAt} {
		at := slices.IndexFunc(shape.Columns, func(column Column) bool { return column.Name == name })
		column := tuple.Columns[at]
		switch {
		case column.DataType == pglogrepl.TupleDataTypeNull:
			wanted = append(wanted, nil)
		case shape.Columns[at].Type == byteaOID:
			decoded := make([]byte, len(column.Data)/2-1)
			if _, err := fmt.Sscanf(string(column.Data[2:]), "%x", &decoded); err != nil && len(column.Data) > 2 {
				panic(err)
			}
			wanted = append(wanted, decoded)
		default:
			wanted = append(wanted, append([]byte{}, column.Data...))
		}
	}
	return wanted
}
