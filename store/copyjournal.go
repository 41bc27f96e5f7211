package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// copyJournal writes a batch of which no id is journaled yet, in one transaction and two round trips; it fails with a
// unique violation, and writes nothing, when one is.
//
// COPY takes a third of the server's time of INSERT … ON CONFLICT and half of its WAL: it fills pages at once, and a
// conflict clause makes Postgres insert each row tentatively and log once more that it stays. See docs/journal.md.
func (s *Store) copyJournal(ctx context.Context, o *Outbox, source int32, published []Published) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		c := conn.Conn().PgConn()
		err := s.copyInto(ctx, c, "BEGIN; "+writing.sql()+"; ", "; COMMIT", o, source, published)
		if err != nil && !c.IsClosed() {
			_ = c.Exec(ctx, "ROLLBACK").Close() // or the pool would close the connection
		}
		return err
	})
}

// copyInto does it in the transaction that a connection is in, or that before begins; after ends it.
//
// The batch's array goes by a COPY of its own, in binary form: to read it from a literal costs the server several times as
// much.
func (s *Store) copyInto(ctx context.Context, c *pgconn.PgConn, before, after string, o *Outbox, source int32, published []Published) error {
	buffer := s.copyBuffer()
	if err := buffer.fill(o.IDType, source, published); err != nil {
		return err
	}
	_, err := c.CopyFrom(ctx, bytes.NewReader(buffer.batch), before+
		"COPY "+s.names.batch+" (source, size, ids) FROM STDIN (FORMAT binary)")
	if err == nil {
		_, err = c.CopyFrom(ctx, bytes.NewReader(buffer.rows),
			"COPY "+s.names.journal+` (source, event_id, topic, partition, "offset") FROM STDIN (FORMAT binary)`+after)
	}
	if err == nil { // pgx may still be reading what it could not send
		s.keepCopyBuffer(buffer)
	}
	return err
}

// copyBuffer is the memory of one batch on its way, used again: at full speed it would be most of the garbage.
type copyBuffer struct {
	order       []int32
	batch, rows []byte
}

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

// The file format of COPY … (FORMAT binary), Postgres's documentation of COPY, "Binary Format": header, rows, trailer.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTrailer = 0xffff
)

// fill encodes a batch: one row with the array of its ids, and its journal rows.
//
// Both are in the order of the ids, as text. A batch is what several partitions acknowledged by turns; in order, the ids that
// most outboxes have, which grow with time, are neighbours in the journal's index and in the outbox: less of the server's time
// here and when the mirror marks the rows, and fuller pages.
func (c *copyBuffer) fill(idType string, source int32, published []Published) error {
	c.order = c.order[:0]
	for i := range published {
		c.order = append(c.order, int32(i))
	}
	slices.SortFunc(c.order, func(x, y int32) int { return bytes.Compare(published[x].ID, published[y].ID) })

	b := append(c.batch[:0], copyHeader...)
	b = binary.BigEndian.AppendUint16(b, 3) // fields
	b = appendInt4(b, source)
	b = appendInt4(b, int32(len(published)))
	b = binary.BigEndian.AppendUint32(b, 0) // the array's length, known below
	array := len(b)
	b, err := appendIDs(b, idType, len(published), func(i int) []byte { return published[c.order[i]].ID })
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b[array-4:], uint32(len(b)-array))
	c.appendRows(source, b[array+arrayHeaderSize:], published)
	c.batch = binary.BigEndian.AppendUint16(b, copyTrailer)
	return nil
}

// appendRows makes the journal rows. The ids are the elements of an array, which have the form of a row's fields.
func (c *copyBuffer) appendRows(source int32, ids []byte, published []Published) {
	size := len(copyHeader) + 2 + len(ids)
	for i := range published {
		size += 2 + 4*4 + 4 + 4 + 8 + len(published[i].Topic)
	}
	b := append(slices.Grow(c.rows[:0], size), copyHeader...)
	for _, i := range c.order {
		e := &published[i]
		b = binary.BigEndian.AppendUint16(b, 5) // fields
		b = appendInt4(b, source)
		id := 4 + binary.BigEndian.Uint32(ids)
		b, ids = append(b, ids[:id]...), ids[id:]
		b = appendText(b, e.Topic)
		b = appendInt4(b, e.Partition)
		b = appendInt8(b, e.Offset)
	}
	c.rows = binary.BigEndian.AppendUint16(b, copyTrailer)
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
