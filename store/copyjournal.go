package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// copyJournal writes a batch of which no id is journaled yet, in one transaction and one round trip; it fails with a
// unique violation, and writes nothing, when one is.
//
// COPY takes a third of the server's time of INSERT … ON CONFLICT and half of its WAL: it fills pages at once, and a
// conflict clause makes Postgres insert each row tentatively and log once more that it stays. See docs/journal.md.
// The statements of one simple query are one transaction, whose last is the COPY.
func (s *Store) copyJournal(ctx context.Context, o *Outbox, source int32, published []Published) error {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return s.copyInto(ctx, c.Conn().PgConn(), writing.sql()+"; ", o, source, published)
}

// copyInto does the same by a connection that may be in a transaction. The statements that it begins with come first.
func (s *Store) copyInto(ctx context.Context, c *pgconn.PgConn, first string, o *Outbox, source int32, published []Published) error {
	buffers := s.copyBuffer()
	defer s.keepCopyBuffer(buffers)
	var err error
	if buffers.rows, err = copyRows(buffers.rows[:0], o.IDType, source, published); err != nil {
		return err
	}
	t := append(buffers.text[:0], first...)
	t = append(t, "INSERT INTO "...)
	t = append(t, s.names.batch...)
	t = append(t, " (source, size, ids) VALUES ("...)
	t = strconv.AppendInt(t, int64(source), 10)
	t = append(t, ", "...)
	t = strconv.AppendInt(t, int64(len(published)), 10)
	t = append(t, ", "...)
	t = appendIDsLiteral(t, o.IDType, published)
	t = append(t, "); COPY "...)
	t = append(t, s.names.journal...)
	t = append(t, ` (source, event_id, topic, partition, "offset") FROM STDIN (FORMAT binary)`...)
	buffers.text = t
	_, err = c.CopyFrom(ctx, bytes.NewReader(buffers.rows), string(t))
	return err
}

// copyBuffer is the memory of one batch on its way, used again: at full speed it would be most of the garbage.
type copyBuffer struct{ rows, text []byte }

// copyBuffersKept is how many are kept: one for each that the relay writes at once.
const copyBuffersKept = 2

func (s *Store) copyBuffer() *copyBuffer {
	select {
	case b := <-s.copyBuffers:
		return b
	default:
		return new(copyBuffer)
	}
}

func (s *Store) keepCopyBuffer(b *copyBuffer) {
	select {
	case s.copyBuffers <- b:
	default:
	}
}

// copyRows appends the file format of COPY … (FORMAT binary), Postgres's documentation of COPY, "Binary Format".
func copyRows(b []byte, idType string, source int32, published []Published) ([]byte, error) {
	const header = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	const fields = 5
	size := len(header) + 2
	for i := range published {
		size += 2 + 5*4 + 4 + 4 + 8 + max(16, len(published[i].ID)) + len(published[i].Topic)
	}
	b = append(slices.Grow(b, size), header...)
	var err error
	for i := range published {
		e := &published[i]
		b = binary.BigEndian.AppendUint16(b, fields)
		b = appendInt4(b, source)
		if b, err = appendID(b, idType, e.ID); err != nil {
			return nil, err
		}
		b = appendText(b, e.Topic)
		b = appendInt4(b, e.Partition)
		b = appendInt8(b, e.Offset)
	}
	return binary.BigEndian.AppendUint16(b, 0xffff), nil
}

// appendIDsLiteral appends an array of ids that copyRows has checked as an SQL literal. Only a text may hold what SQL or
// the array's own form must quote; the literal reads the same with standard_conforming_strings on and off.
func appendIDsLiteral(b []byte, idType string, published []Published) []byte {
	if idType == idText {
		return append(b, literal(textIDs(published))...)
	}
	size := 4
	for i := range published {
		size += len(published[i].ID) + 1
	}
	b = slices.Grow(b, size)
	b = append(b, '\'', '{')
	for i := range published {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, published[i].ID...)
	}
	return append(b, '}', '\'')
}

// textIDs is the text form of an array of texts.
func textIDs(published []Published) string {
	size := 2
	for i := range published {
		size += len(published[i].ID) + 3
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i := range published {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for _, c := range published[i].ID {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// A field of a binary row or an element of a binary array: its length and its value.

func appendInt4(b []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(v))
}

func appendInt8(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
}

func appendText(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendBool(b []byte, v bool) []byte {
	b = binary.BigEndian.AppendUint32(b, 1)
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
