package simulator

import (
	"encoding/binary"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// transaction is one of the application's, or a message of the relay's.
type transaction struct {
	xid      uint32
	rows     []*row
	tokens   [][3]string // messages: prefix, content
	foreign  int         // rows of another table that is published too
	tables   []*table    // that its rows are of
	lanes    []string    // that it has locked
	over     bool        // aborted, or visible
	commit   outbox.LSN  // where its commit record begins
	end      outbox.LSN  // the first byte behind it
	at       time.Time
	refused  error // the server ends each stream that comes here; nil: it does not
	shuffled bool  // a message stands in front of the rows
}

// item is one item of the stream: a transaction, or a message that belongs to none.
type item struct {
	tx  *transaction
	lsn outbox.LSN // of the message
}

// from is compared with the slot's position: Postgres skips a transaction only if its commit record begins
// before it (PostgreSQL: SnapBuildXactNeedsSkip).
func (i item) from() outbox.LSN {
	if i.tx != nil {
		return i.tx.commit
	}
	return i.lsn
}

// wal is the write-ahead log: what was committed, in the order of the commits.
type wal struct {
	end   outbox.LSN // of everything, aborted transactions and other tables included
	items []item
}

// published are the rows that the publication had.
func (tx *transaction) published() (rows []*row) {
	for _, r := range tx.rows {
		if !r.missed {
			rows = append(rows, r)
		}
	}
	return rows
}

// Sizes of records, more or less.
const (
	walRow, walCommit, walMessage = 120, 34, 48
)

// messages are the transaction as pgoutput sends it, protocol version 1. Each table is announced in front of its first
// row, or not, as announce says. The bytes are the caller's.
func (tx *transaction) messages(b []byte,
	announce func(*table) bool) (messages [][]byte, ends []outbox.LSN, buffer []byte) {
	from := 0
	cut := func(lsn outbox.LSN) {
		messages, ends = append(messages, b[from:len(b):len(b)]), append(ends, lsn)
		from = len(b)
	}
	micros := uint64(tx.at.UnixMicro() - 946_684_800_000_000)
	b = append(b, 'B')
	b = binary.BigEndian.AppendUint64(b, uint64(tx.commit))
	b = binary.BigEndian.AppendUint64(b, micros)
	b = binary.BigEndian.AppendUint32(b, tx.xid)
	cut(tx.commit)
	if tx.shuffled {
		for _, m := range tx.tokens {
			b = appendMessage(b, 1, tx.commit-1, m[0], m[1])
			cut(0)
		}
	}
	if tx.foreign > 0 {
		b = appendRelation(b, foreignOID, "public", "other", []string{"id"})
		cut(0)
		for range tx.foreign {
			b = append(b, 'I')
			b = binary.BigEndian.AppendUint32(b, foreignOID)
			b = append(b, 'N')
			b = binary.BigEndian.AppendUint16(b, 1)
			b = appendValue(b, "1")
			cut(tx.commit - 1)
		}
	}
	seen := map[*table]bool{}
	for _, r := range tx.published() {
		if t := r.table; !seen[t] {
			seen[t] = true
			if announce(t) {
				b = appendRelation(b, t.oid, t.schema, outboxName, columns)
				cut(0)
			}
		}
		b = r.table.appendRow(b, r)
		cut(tx.commit - 1)
	}
	if !tx.shuffled {
		for _, m := range tx.tokens {
			b = appendMessage(b, 1, tx.commit-1, m[0], m[1])
			cut(0)
		}
	}
	b = append(b, 'C', 0)
	b = binary.BigEndian.AppendUint64(b, uint64(tx.commit))
	b = binary.BigEndian.AppendUint64(b, uint64(tx.end))
	b = binary.BigEndian.AppendUint64(b, micros)
	cut(tx.end)
	return messages, ends, b
}

// columns of the outbox, in an order that is not the configuration's.
var columns = []string{"seq", "id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "created_at"}

const (
	foreignOID = 9
	outboxName = "outbox_events" // of each table, without its schema
)

func (t *table) appendRow(b []byte, r *row) []byte {
	b = append(b, 'I')
	b = binary.BigEndian.AppendUint32(b, t.oid)
	b = append(b, 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	b = appendValue(b, "1")
	b = appendValue(b, r.id)
	b = appendValue(b, r.kind)
	if r.key == "" {
		b = append(b, 'n')
	} else {
		b = appendValue(b, r.key)
	}
	b = appendValue(b, "made")
	b = appendValue(b, r.payload)
	if r.headers == "" {
		b = append(b, 'n')
	} else {
		b = appendValue(b, r.headers)
	}
	return appendValue(b, r.createdAt())
}

// createdAt is the time as Postgres prints it.
func (r *row) createdAt() string { return r.made.UTC().Format("2006-01-02 15:04:05.999999+00") }

func appendValue(b []byte, text string) []byte {
	b = append(b, 't')
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

func appendRelation(b []byte, oid uint32, schema, name string, columns []string) []byte {
	b = append(b, 'R')
	b = binary.BigEndian.AppendUint32(b, oid)
	b = append(append(b, schema...), 0)
	b = append(append(b, name...), 0)
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		const text = 25 // the type's OID
		b = append(b, 0)
		b = append(append(b, c...), 0)
		b = binary.BigEndian.AppendUint32(b, text)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

func appendMessage(b []byte, flags byte, lsn outbox.LSN, prefix, content string) []byte {
	b = append(b, 'M', flags)
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = append(append(b, prefix...), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}
