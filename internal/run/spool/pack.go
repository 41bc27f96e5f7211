package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// rowBytes is where a row ends: a transaction that would make it larger begins another one, and one that is larger by
// itself is cut into parts.
const rowBytes = 1 << 20

// filling is a row that is being filled. Its messages stand one behind the other, each behind its length.
type filling struct {
	data      []byte
	ends      outbox.LSN // of the last transaction that ends in it; 0: none
	committed int64      // of the first, microseconds since the Unix epoch
	events    int
}

func (f *filling) add(message []byte) {
	f.data = append(binary.BigEndian.AppendUint32(f.data, uint32(len(message))), message...)
}

// packer cuts a stream into rows. Invariants:
//
//  1. A row holds whole transactions, or one part of one transaction, whose parts follow each other.
//  2. A row that begins with a transaction begins with what the stream had announced of the table by then, so that it
//     can be decoded without those before it.
type packer struct {
	relations map[uint32][]byte // as announced last
	head      []byte            // of these; never changed, only replaced

	row filling // whole transactions
	tx  filling // the open one

	open   bool
	skip   bool   // it is stored already
	ours   bool   // something of it is to be kept
	part   bool   // its beginning was taken as a row
	before []byte // head, when it began
}

// announce takes what the stream says of the table.
func (p *packer) announce(oid uint32, message []byte) {
	if p.relations == nil {
		p.relations = map[uint32][]byte{}
	}
	p.relations[oid] = slices.Clone(message)
	var all filling
	for _, oid := range slices.Sorted(maps.Keys(p.relations)) {
		all.add(p.relations[oid])
	}
	p.head = all.data
}

// begin opens a transaction; what follows it up to its end is dropped if it is to be skipped.
func (p *packer) begin(committed int64, message []byte, skip bool) {
	p.open, p.skip, p.ours, p.part, p.before = true, skip, false, false, p.head
	p.tx = filling{data: p.tx.data[:0], committed: committed}
	p.tx.add(message)
}

// keep takes a message of the open transaction.
func (p *packer) keep(message []byte, events int) {
	if p.skip {
		return
	}
	p.ours = true
	p.tx.add(message)
	p.tx.events += events
}

// commit closes the transaction. What nothing is kept of is dropped.
func (p *packer) commit(end outbox.LSN, message []byte) {
	p.open = false
	if p.skip || !p.ours {
		return
	}
	p.tx.add(message)
	p.tx.ends = end
}

// full hands out the rows that are to be stored now, oldest first. It is asked after each message.
func (p *packer) full() (rows []filling) {
	switch {
	case p.skip || !p.ours:
	case !p.open:
		rows = p.closed()
	case len(p.tx.data) >= rowBytes:
		rows = append(p.take(), p.cut())
	}
	return rows
}

// closed puts a transaction that has ended where it belongs.
func (p *packer) closed() (rows []filling) {
	p.ours = false
	if p.part {
		return []filling{p.cut()}
	}
	if len(p.row.data) > 0 && len(p.row.data)+len(p.tx.data) > rowBytes {
		rows = p.take()
	}
	if len(p.row.data) == 0 {
		p.row = filling{data: append(slices.Clone(p.before), p.tx.data...), committed: p.tx.committed}
	} else {
		p.row.data = append(p.row.data, p.tx.data...)
	}
	p.row.ends, p.row.events = p.tx.ends, p.row.events+p.tx.events
	return rows
}

// cut takes what there is of the transaction as a row of its own.
func (p *packer) cut() filling {
	f := p.tx
	if !p.part {
		f.data = append(slices.Clone(p.before), f.data...)
	}
	p.part, p.tx = true, filling{committed: f.committed}
	return f
}

// take takes the whole transactions.
func (p *packer) take() []filling {
	if len(p.row.data) == 0 {
		return nil
	}
	f := p.row
	p.row = filling{}
	return []filling{f}
}

// rename has the messages name the outbox as it is now: it may have been another table when they were stored, whose
// records were adopted since. The intake keeps only what is the outbox's.
func rename(messages [][]byte, outbox []uint32, root uint32) error {
	if root == 0 {
		return nil
	}
	for _, m := range messages {
		if len(m) == 0 {
			return errors.New("a message is empty")
		}
		if m[0] != 'R' && m[0] != 'I' {
			continue
		}
		if len(m) < 5 {
			return fmt.Errorf("a message %q has %d bytes", m[0], len(m))
		}
		if !slices.Contains(outbox, binary.BigEndian.Uint32(m[1:])) {
			binary.BigEndian.PutUint32(m[1:], root)
		}
	}
	return nil
}

// codec compresses and decompresses rows. One goroutine compresses, one decompresses: a session has its own, since what
// the encoder allocates is only needed while something is spooled.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

func newCodec() *codec {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(rowBytes), zstd.WithLowerEncoderMem(true))
	d, failed := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(1<<31))
	if err = errors.Join(err, failed); err != nil {
		panic(fmt.Sprintf("spool: make a zstd codec: %v", err)) // only wrong options are errors
	}
	return &codec{e, d}
}

func (c *codec) compress(data []byte) []byte { return c.encoder.EncodeAll(data, nil) }

// apart is the length from which a message gets memory of its own: an event that large keeps the bytes that it came in.
const apart = 32 << 10

// Unpack returns the messages of a row's data.
func Unpack(data []byte) (messages [][]byte, err error) {
	c := newCodec()
	defer c.decoder.Close()
	return c.unpack(data)
}

// unpack returns the messages of a row's data. The caller may change them.
func (c *codec) unpack(data []byte) (messages [][]byte, err error) {
	plain, err := c.decoder.DecodeAll(data, nil)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	for len(plain) > 0 {
		if len(plain) < 4 {
			return nil, errors.New("a message has no length")
		}
		n := int(binary.BigEndian.Uint32(plain))
		if plain = plain[4:]; n > len(plain) {
			return nil, fmt.Errorf("a message of %d bytes has %d", n, len(plain))
		}
		m := plain[:n:n]
		if n > apart {
			m = slices.Clone(m)
		}
		messages, plain = append(messages, m), plain[n:]
	}
	return messages, nil
}
