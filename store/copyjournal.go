package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
)

// copyJournal writes a batch of which no id is journaled yet, in one transaction and one round trip; it fails with a
// unique violation, and writes nothing, when one is.
//
// COPY takes a third of the server's time of INSERT … ON CONFLICT and half of its WAL: it fills pages at once, and a
// conflict clause makes Postgres insert each row tentatively and log once more that it stays. See docs/journal.md.
// The statements of one simple query are one transaction, whose last is the COPY.
func (s *Store) copyJournal(ctx context.Context, o *Outbox, source int32, published []Published) error {
	rows, err := copyRows(o.IDType, source, published)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(writing.sql())
	b.WriteString("; INSERT INTO ")
	b.WriteString(s.names.batch)
	b.WriteString(" (source, size, ids) VALUES (")
	b.WriteString(strconv.Itoa(int(source)))
	b.WriteString(", ")
	b.WriteString(strconv.Itoa(len(published)))
	b.WriteString(", ")
	b.WriteString(literal(idsLiteral(o.IDType, published)))
	b.WriteString("); COPY ")
	b.WriteString(s.names.journal)
	b.WriteString(` (source, event_id, topic, partition, "offset") FROM STDIN (FORMAT binary)`)

	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	_, err = c.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows), b.String())
	return err
}

// copyRows is the file format of COPY … (FORMAT binary), Postgres's documentation of COPY, "Binary Format".
func copyRows(idType string, source int32, published []Published) ([]byte, error) {
	const header = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	const fields = 5
	size := len(header) + 2
	for i := range published {
		size += 2 + 5*4 + 4 + 4 + 8 + max(16, len(published[i].ID)) + len(published[i].Topic)
	}
	b := append(make([]byte, 0, size), header...)
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

// idsLiteral is the text form of an array of ids that copyRows has checked.
func idsLiteral(idType string, published []Published) string {
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
		if idType != idText {
			b.Write(published[i].ID)
			continue
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
