package outbox

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
)

// Position is an event's place in the total order in which its lane must reach Kafka. It is for order. An event
// is known by its id, because LSNs go back when Postgres or the relay restarts and several rows share one; of events
// whose application uses ids again, the position tells which is which (see Mark).
//
// There are two kinds. Stream positions are (LSN of the commit record, index of the row in its transaction). Table
// positions belong to rows that a catch-up read from the outbox table: (epoch of the catch-up, row number). Within one
// epoch all table positions precede all stream positions, because the catch-up is published before the stream. The
// epoch is that of the catch-up and not of the takeover that read the event: what a crash brings again must get the
// same place, before what came after it and is parked already.
type Position struct {
	Epoch int64  // the relay's epoch at the snapshot of the last catch-up, 0 if there was none; see below
	Table bool   // read from the table by a catch-up, not from the stream
	Order uint64 // commit LSN of a stream position, row number (from 1) of a table position
	Index uint32 // index in the transaction, from 0; always 0 in a table position
}

// Compare orders positions: first epoch, then table before stream, then LSN or row number, then index.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Epoch, q.Epoch); c != 0 {
		return c
	}
	if p.Table != q.Table {
		if p.Table {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(p.Order, q.Order); c != 0 {
		return c
	}
	return cmp.Compare(p.Index, q.Index)
}

// String is the form of the x-outbox-position header: "<commit LSN>/<index>" or "table/<epoch>/<row number>".
func (p Position) String() string { return string(p.AppendText(make([]byte, 0, 48))) }

// AppendText appends the form of [Position.String] to b, at most 46 bytes.
func (p Position) AppendText(b []byte) []byte {
	if p.Table {
		b = append(b, "table/"...)
		b = strconv.AppendInt(b, p.Epoch, 10)
		b = append(b, '/')
		return strconv.AppendUint(b, p.Order, 10)
	}
	b = LSN(p.Order).AppendText(b)
	b = append(b, '/')
	return strconv.AppendUint(b, uint64(p.Index), 10)
}

// Mark folds a stream position into 31 bits: an event that comes again has the mark that it had, another one that uses
// its id has another. Commit records begin at multiples of eight bytes. 0: a table position has none. [MarkSQL] is the
// same in SQL.
func (p Position) Mark() int32 {
	if p.Table || p.Order == 0 {
		return 0
	}
	return int32((p.Order/8 + uint64(p.Index)*markFactor) % (1 << 31))
}

// RowMark folds the place of a row that was read from the table into a negative number. Listed: the row is as a
// catch-up listed it, so an event that was committed after the list was made is another one. Reused: another event had
// its id before, and gives up its place in the journal.
func (p Position) RowMark(listed, reused bool) int32 {
	fold := int32((p.Order+uint64(p.Epoch)*markFactor)%(1<<29)) << 2
	if listed {
		fold |= markListed
	}
	if reused {
		fold |= markReused
	}
	return fold + math.MinInt32
}

const markListed, markReused = 1, 2 // bits of a negative mark

// ListedSQL reports whether a mark is of a listed row; see [Position.RowMark].
func ListedSQL(mark string) string {
	return fmt.Sprintf("(%[1]s < 0 AND %[1]s & %[2]d <> 0)", mark, markListed)
}

// ReusedSQL reports whether a mark is of a row whose id another event had before.
func ReusedSQL(mark string) string {
	return fmt.Sprintf("(%[1]s < 0 AND %[1]s & %[2]d <> 0)", mark, markReused)
}

// markFactor is a prime below 2^31 that spreads the rows of a transaction.
const markFactor = 1640531527

// MarkSQL is [Position.Mark] of the columns position_order and position_index of a table.
func MarkSQL(table string) string {
	return "((" + table + ".position_order / 8 + " + table + ".position_index * 1640531527) % 2147483648)::integer"
}
