package outcome

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// copyJournal writes a batch without journaled ids, in one transaction and two round trips; it fails with a
// unique violation, and writes nothing, when one is.
//
// COPY takes a third of the server's time of INSERT … ON CONFLICT and half of its WAL: it fills pages at once, and a
// conflict clause makes Postgres insert each row tentatively and log once more that it stays. See docs/lab/journal.md.
func (s *Writer) copyJournal(ctx context.Context, o *db.Table, source int32, published []record.Published) error {
	return s.db.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		c := conn.Conn().PgConn()
		err := s.copyInto(ctx, c, db.Writing.Opening(), "; COMMIT", o, source, published)
		if err != nil && !c.IsClosed() {
			_ = c.Exec(ctx, "ROLLBACK").Close() // or the pool would close the connection
		}
		return err
	})
}

// copyInto does it in the transaction that a connection is in, or that before begins; after ends it.
//
// The batch's array goes by a COPY of its own, in binary form: to read it from a literal costs the server several times
// as much.
func (s *Writer) copyInto(ctx context.Context, c *pgconn.PgConn, before, after string, o *db.Table, source int32,
	published []record.Published) error {
	buffer := s.buffers.get()
	if err := buffer.fill(o.IDType, source, published); err != nil {
		return err
	}
	_, err := c.CopyFrom(ctx, bytes.NewReader(buffer.batch), before+
		"COPY "+s.db.Names.Batch+" (source, size, ids) FROM STDIN (FORMAT binary)")
	if err == nil {
		_, err = c.CopyFrom(ctx, bytes.NewReader(buffer.rows),
			"COPY "+s.db.Names.Journal+` (source, event_id, topic, partition, "offset", stream_mark) FROM STDIN
 (FORMAT binary)`+after)
	}
	if err == nil { // pgx may still be reading what it could not send
		s.buffers.put(buffer)
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

// copyBuffers are kept for reuse.
type copyBuffers chan *copyBuffer

func (s copyBuffers) get() *copyBuffer {
	select {
	case b := <-s:
		return b
	default:
		return new(copyBuffer)
	}
}

func (s copyBuffers) put(b *copyBuffer) {
	select {
	case s <- b:
	default:
	}
}

// The file format of COPY … (FORMAT binary), Postgres's documentation of COPY, "Binary Format": header, rows, trailer.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTrailer = 0xffff
	null        = 0xffffffff // as the length of a field
)

// fill encodes a batch: a row for each source with the array of its ids, and its journal rows. Source is of what has
// none of its own.
//
// Both are in the order of sources and ids, as text. A batch mixes acknowledgements of several partitions; in order,
// the ids that most outboxes have, which grow with time, are neighbours in the journal's index and in the outbox: less
// of the server's time here and when the mirror marks the rows, and fuller pages.
func (c *copyBuffer) fill(idType string, source int32, published []record.Published) error {
	c.order = c.order[:0]
	for i := range published {
		c.order = append(c.order, int32(i))
	}
	slices.SortFunc(c.order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(published[x].Source, published[y].Source),
			bytes.Compare(published[x].ID, published[y].ID))
	})

	c.batch, c.rows = append(c.batch[:0], copyHeader...), append(c.rows[:0], copyHeader...)
	for left := c.order; len(left) > 0; {
		own := published[left[0]].Source
		n := 1
		for n < len(left) && published[left[n]].Source == own {
			n++
		}
		if err := c.appendRun(idType, cmp.Or(own, source), published, left[:n]); err != nil {
			return err
		}
		left = left[n:]
	}
	c.batch = binary.BigEndian.AppendUint16(c.batch, copyTrailer)
	c.rows = binary.BigEndian.AppendUint16(c.rows, copyTrailer)
	return nil
}

// appendRun appends what order lists of published, all of one source.
func (c *copyBuffer) appendRun(idType string, source int32, published []record.Published, order []int32) error {
	b := binary.BigEndian.AppendUint16(c.batch, 3) // fields
	b = db.AppendInt4(b, source)
	b = db.AppendInt4(b, int32(len(order)))
	b = binary.BigEndian.AppendUint32(b, 0) // the array's length, known below
	array := len(b)
	b, err := db.AppendIDs(b, idType, len(order), func(i int) []byte { return published[order[i]].ID })
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b[array-4:], uint32(len(b)-array))
	c.batch = b
	c.appendRows(source, b[array+db.ArrayHeaderSize:], published, order)
	return nil
}

// appendRows makes the journal rows. The ids are the elements of an array, which have the form of a row's fields.
func (c *copyBuffer) appendRows(source int32, ids []byte, published []record.Published, order []int32) {
	size := len(ids) + 2
	for _, i := range order {
		size += 2 + 5*4 + 4 + 4 + 8 + 4 + len(published[i].Topic)
	}
	b := slices.Grow(c.rows, size)
	for _, i := range order {
		e := &published[i]
		b = binary.BigEndian.AppendUint16(b, 6) // fields
		b = db.AppendInt4(b, source)
		id := 4 + binary.BigEndian.Uint32(ids)
		b, ids = append(b, ids[:id]...), ids[id:]
		b = db.AppendText(b, e.Topic)
		b = db.AppendInt4(b, e.Partition)
		b = db.AppendInt8(b, e.Offset)
		if e.Mark == 0 {
			b = binary.BigEndian.AppendUint32(b, null)
		} else {
			b = db.AppendInt4(b, e.Mark)
		}
	}
	c.rows = b
}

func (s *Writer) encoded(idType string, published []record.Published) (int, error) {
	buffer := s.buffers.get()
	defer s.buffers.put(buffer)
	err := buffer.fill(idType, 1, published)
	return len(buffer.batch) + len(buffer.rows), err
}

// Encoder does for each batch what Settle does before it sends it, and reports its size: what a test measures.
func Encoder() func(idType string, published []record.Published) (int, error) {
	return New(nil).encoded
}
