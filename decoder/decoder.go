// Package decoder turns the messages of Postgres's logical decoding plugin pgoutput, protocol version 1 in text form,
// into transactions of outbox events. It checks what it reads: a message that is cut, too long, out of turn or unknown
// is an error, never a panic and never skipped. It does no I/O and knows neither SQL nor where the bytes come from.
//
// The formats are those of "Logical Replication Message Formats" in the Postgres manual, and of
// src/backend/replication/logical/proto.c where the manual is silent.
//
// Tested by recorded streams of a real server, cut at every byte, and fuzzed.
package decoder

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Kind is the meaning of a message for the relay.
type Kind uint8

// The kinds of messages. The zero Kind comes with an error only.
const (
	Begin           Kind = iota + 1 // a transaction begins: sent as a whole, and only after it has committed
	Commit                          // it ends
	RelationMessage                 // the columns of a bound table: before its first row and again after each change of it
	Insert                          // one row of a bound table
	LogicalMessage                  // pg_logical_emit_message
	Ignored                         // well-formed and of no interest: see Message.Wire and Message.Foreign
)

// String is the name of the kind.
func (k Kind) String() string {
	switch k {
	case Begin:
		return "Begin"
	case Commit:
		return "Commit"
	case RelationMessage:
		return "Relation"
	case Insert:
		return "Insert"
	case LogicalMessage:
		return "LogicalMessage"
	case Ignored:
		return "Ignored"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Config binds a [Decoder] to the outbox table.
type Config struct {
	Columns outbox.Columns
	// Tables are the OIDs of the outbox table: the root and, when it is partitioned, every leaf. Rows of any other
	// relation are Ignored with Foreign set. Binding to OIDs and not to a name detects a table that was swapped
	// for another of the same name.
	Tables []uint32
	// Sources is for several outboxes in one stream. It returns the source of a relation that is not in Tables, which
	// its events get, or false for a relation that is not an outbox. It is asked at each Relation message, before the
	// first row of the relation; its error becomes a *[SourceError]. nil: there are no others.
	Sources func(*Relation) (source int32, is bool, err error)
	// CreatedIn is the time zone of a created_at that has none; its values are turned into UTC. nil: they stay as they
	// are.
	CreatedIn *time.Location
}

// Message is one decoded message. Fields that its kind does not name are zero.
type Message struct {
	Kind Kind
	Wire byte // the type byte of the message, such as 'I'; tells Ignored messages apart
	// Begin: the final LSN, where the commit record starts; Commit: the same again; LogicalMessage: its own
	LSN  outbox.LSN
	End  outbox.LSN // Commit: the first byte after the commit record (TransactionEndLSN): the LSN to confirm
	Time int64      // Begin, Commit: when it was committed, in microseconds since the Unix epoch
	XID  uint32     // Begin: the transaction's id
	OID  uint32     // Relation, Insert, and Ignored 'R', 'I', 'U', 'D': the relation
	// Relation: the source of its events; see Config.Sources.
	Source int32
	// Relation: what the message says. Also set for an Ignored 'R', so that the caller can tell a new partition of the
	// outbox from a stranger.
	Relation      *Relation
	Prefix        []byte // LogicalMessage; aliases the data
	Content       []byte // LogicalMessage; aliases the data
	Transactional bool   // LogicalMessage: part of the open transaction; if not, it is sent even if its transaction fails
	Foreign       bool   // Ignored 'R', 'I', 'U', 'D': of a table that is not ours
}

// Message types of protocol version 1 (src/include/replication/logicalproto.h).
const (
	wireBegin    = 'B'
	wireCommit   = 'C'
	wireOrigin   = 'O'
	wireRelation = 'R'
	wireType     = 'Y'
	wireInsert   = 'I'
	wireUpdate   = 'U'
	wireDelete   = 'D'
	wireTruncate = 'T'
	wireMessage  = 'M'
)

// postgresEpoch is 2000-01-01 00:00:00 UTC, from which Postgres counts, in microseconds since the Unix epoch.
const postgresEpoch = 946_684_800_000_000

// Decoder decodes the messages of one replication connection at a time. It is not safe for concurrent use.
//
// Invariants:
//   - D1 a row is mapped by the last Relation message of its OID on this connection, never by an older one.
//   - D2 Begin and Commit alternate, name the same LSN, and commit LSNs grow.
//   - D3 after an error nothing more is decoded until Reset: what follows an unreadable message cannot be trusted.
type Decoder struct {
	columns outbox.Columns
	bound   map[uint32]bool
	sources func(*Relation) (source int32, is bool, err error)
	created *time.Location

	relations map[uint32]*binding // what this connection announced, bound and foreign
	last      *binding            // the relation of the last row: rows come in runs
	values    [][]byte            // the column values of the row being decoded; nil = NULL

	skipped int64 // bytes of the row that package replication has not kept

	inTransaction bool
	commitLSN     outbox.LSN // of the open transaction
	begun         uint64     // transactions so far; counters compare with it
	counters      map[int32]*counter
	lastEnd       outbox.LSN // end of the last transaction
	failed        error      // the error after which this connection cannot be decoded further
}

// counter counts the rows of one source in a transaction. A position does not depend on which other outboxes the
// decoder knew when it was decoded: the same row has it again after a restart.
type counter struct {
	transaction uint64 // that next is of
	next        uint32
}

// take returns the index of the next row in the transaction.
func (c *counter) take(transaction uint64) (index uint32) {
	if c.transaction != transaction {
		c.transaction, c.next = transaction, 0
	}
	index = c.next
	c.next++
	return index
}

// New returns a decoder for a new connection.
func New(c Config) *Decoder {
	d := &Decoder{columns: c.Columns, created: c.CreatedIn, sources: c.Sources,
		bound: make(map[uint32]bool, len(c.Tables)), counters: make(map[int32]*counter)}
	d.columns.Extra = append([]string(nil), c.Columns.Extra...)
	for _, oid := range c.Tables {
		d.bound[oid] = true
	}
	d.Reset()
	return d
}

// Reset prepares the decoder for a new connection: Postgres announces every relation again, and an open transaction
// comes again from its begin.
func (d *Decoder) Reset() {
	d.relations = make(map[uint32]*binding)
	d.last = nil
	d.inTransaction, d.commitLSN, d.lastEnd = false, 0, 0
	d.failed = nil
}

// Decode decodes one message: the payload of one XLogData.
//
// For an Insert it fills ev, whose bytes then alias data; a bytea column is decoded from hex in place, so data itself
// changes. ev.Position gets the commit LSN and the row's index among the transaction's rows of its source; its Epoch is
// the caller's and stays as it is. For other kinds ev is not touched. Decode of a row does not allocate once ev.Extra
// has its size.
//
// Errors: *[MalformedError], *[ColumnError], *[RowError], *[SourceError]. All of them end the connection: until Reset,
// Decode returns the same error again.
func (d *Decoder) Decode(data []byte, ev *outbox.Event) (Message, error) {
	if d.failed != nil {
		return Message{}, d.failed
	}
	m, err := d.decode(data, ev)
	if err != nil {
		d.failed = err
		return Message{}, err
	}
	return m, nil
}

func (d *Decoder) decode(data []byte, ev *outbox.Event) (Message, error) {
	if len(data) == 0 {
		return Message{}, d.malformed(data, 0, "empty message")
	}
	switch data[0] {
	case wireInsert:
		return d.insert(data, ev)
	case wireBegin:
		return d.begin(data)
	case wireCommit:
		return d.commit(data)
	case wireRelation:
		return d.relation(data)
	case wireMessage:
		return d.logicalMessage(data)
	case wireUpdate, wireDelete:
		return d.change(data)
	case wireTruncate:
		return d.truncate(data)
	case wireType:
		return d.typeName(data)
	case wireOrigin:
		return d.origin(data)
	}
	return Message{}, d.malformed(data, 0, fmt.Sprintf("message type %q is not of protocol version 1 (streaming and "+
		"two_phase must be off)", data[0]))
}

// begin reads Byte1('B') Int64(final LSN) Int64(commit time) Int32(xid).
func (d *Decoder) begin(data []byte) (Message, error) {
	const size = 21
	if len(data) != size {
		return Message{}, d.wrongLength(data, size)
	}
	m := Message{
		Kind: Begin,
		Wire: wireBegin,
		LSN:  outbox.LSN(binary.BigEndian.Uint64(data[1:])),
		Time: int64(binary.BigEndian.Uint64(data[9:])) + postgresEpoch,
		XID:  binary.BigEndian.Uint32(data[17:]),
	}
	switch {
	case d.inTransaction:
		return Message{}, d.malformed(data, 0, "begin inside a transaction")
	case m.LSN == 0:
		return Message{}, d.malformed(data, 1, "begin without a final LSN")
	case m.LSN < d.lastEnd:
		return Message{}, d.malformed(data, 1, fmt.Sprintf("begin of a transaction that committed at %v, before the end %v "+
			"of the one before it", m.LSN, d.lastEnd))
	}
	d.inTransaction, d.commitLSN = true, m.LSN
	d.begun++
	return m, nil
}

// commit reads Byte1('C') Int8(flags, 0) Int64(commit LSN) Int64(end LSN) Int64(commit time).
func (d *Decoder) commit(data []byte) (Message, error) {
	const size = 26
	if len(data) != size {
		return Message{}, d.wrongLength(data, size)
	}
	m := Message{
		Kind: Commit,
		Wire: wireCommit,
		LSN:  outbox.LSN(binary.BigEndian.Uint64(data[2:])),
		End:  outbox.LSN(binary.BigEndian.Uint64(data[10:])),
		Time: int64(binary.BigEndian.Uint64(data[18:])) + postgresEpoch,
	}
	switch {
	case !d.inTransaction:
		return Message{}, d.malformed(data, 0, "commit outside a transaction")
	case data[1] != 0:
		return Message{}, d.malformed(data, 1, fmt.Sprintf("commit with unknown flags %#x", data[1]))
	case m.LSN != d.commitLSN:
		return Message{}, d.malformed(data, 2,
			fmt.Sprintf("commit at %v of the transaction that began with %v", m.LSN, d.commitLSN))
	case m.End <= m.LSN:
		return Message{}, d.malformed(data, 10, fmt.Sprintf("commit at %v ends at %v, not after it", m.LSN, m.End))
	}
	d.inTransaction, d.commitLSN, d.lastEnd = false, 0, m.End
	return m, nil
}

// logicalMessage reads Byte1('M') Int8(flags, 1 = transactional) Int64(LSN) String(prefix) Int32(length)
// Byten(content).
func (d *Decoder) logicalMessage(data []byte) (Message, error) {
	r := reader{data: data, off: 1}
	flags := r.uint8()
	lsn := outbox.LSN(r.uint64())
	prefix := r.string()
	content := r.bytes(int64(r.uint32()))
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	if flags > 1 {
		return Message{}, d.malformed(data, 1, fmt.Sprintf("logical message with unknown flags %#x", flags))
	}
	if flags == 1 && !d.inTransaction {
		return Message{}, d.malformed(data, 1, "transactional logical message outside a transaction")
	}
	return Message{Kind: LogicalMessage, Wire: wireMessage, LSN: lsn, Prefix: prefix, Content: content,
		Transactional: flags == 1}, nil
}

// change reads an update, Byte1('U') Int32(OID) [Byte1('K' or 'O') TupleData] Byte1('N') TupleData, or a delete,
// Byte1('D') Int32(OID) Byte1('K' or 'O') TupleData. The outbox is a table of inserts: neither says anything new.
func (d *Decoder) change(data []byte) (Message, error) {
	if !d.inTransaction {
		return Message{}, d.malformed(data, 0, "change outside a transaction")
	}
	r := reader{data: data, off: 1}
	oid := r.uint32()
	tag := r.uint8()
	if tag == 'K' || tag == 'O' {
		d.tuple(&r)
		if data[0] == wireUpdate {
			tag = r.uint8()
		}
	} else if data[0] == wireDelete {
		r.fail("delete without an old row or key")
	}
	if data[0] == wireUpdate {
		if tag != 'N' {
			r.fail("update without a new row")
		}
		d.tuple(&r)
	}
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	b := d.relations[oid]
	if b == nil {
		return Message{}, d.unknownRelation(data, oid)
	}
	return Message{Kind: Ignored, Wire: data[0], OID: oid, Foreign: b.foreign}, nil
}

// truncate reads Byte1('T') Int32(number of relations) Int8(options) Int32(OID)...
func (d *Decoder) truncate(data []byte) (Message, error) {
	if !d.inTransaction {
		return Message{}, d.malformed(data, 0, "truncate outside a transaction")
	}
	r := reader{data: data, off: 1}
	count := r.uint32()
	r.uint8()
	r.bytes(4 * int64(count))
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	return Message{Kind: Ignored, Wire: wireTruncate}, nil
}

// typeName reads Byte1('Y') Int32(OID) String(namespace) String(name).
func (d *Decoder) typeName(data []byte) (Message, error) {
	r := reader{data: data, off: 1}
	r.uint32()
	r.string()
	r.string()
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	return Message{Kind: Ignored, Wire: wireType}, nil
}

// origin reads Byte1('O') Int64(LSN) String(name).
func (d *Decoder) origin(data []byte) (Message, error) {
	if !d.inTransaction {
		return Message{}, d.malformed(data, 0, "origin outside a transaction")
	}
	r := reader{data: data, off: 1}
	r.uint64()
	r.string()
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	return Message{Kind: Ignored, Wire: wireOrigin}, nil
}
