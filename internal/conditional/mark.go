package conditional

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Mark identifies a record by its content: equal for the same event, whichever relay sent it. The zero mark is for
// records that no relay wrote: they lack the header x-outbox-source.
type Mark [16]byte

// markOf is the record's mark, and the zero mark where it has none because making it panicked: the append says so.
func markOf(s Stream, r *sink.Record) Mark {
	var reason *sink.Reason
	defer sink.Recover(&reason)
	return s.Mark(r)
}

// Digest makes a [Mark] of a record's parts, in the order in which they are added. Marks of this form are stored in the
// notes of BullMQ's jobs: it must not change.
type Digest struct {
	hash   hash.Hash
	ours   bool   // a relay has written it
	source []byte // that one's
}

// NewDigest begins a mark.
func NewDigest() *Digest { return &Digest{hash: sha256.New()} }

// Add adds a part. None, which is nil, is not the same as an empty one.
func (d *Digest) Add(part []byte) {
	var head [9]byte
	if part == nil {
		head[0] = 1
	}
	binary.BigEndian.PutUint64(head[1:], uint64(len(part)))
	d.hash.Write(head[:])
	d.hash.Write(part)
}

// AddHeader adds what a header says of the event itself: two relays, or two terms of one, can send the same event at
// different places of the stream or the table, under other epochs, from a server that was promoted, as late, or in
// another attempt.
func (d *Digest) AddHeader(name string, value []byte) {
	switch name {
	case "x-outbox-position", "x-outbox-epoch", "x-outbox-retry", "x-outbox-late":
		return
	case "x-outbox-source": // <system id>/<timeline>/<source>; the source is random
		d.ours, d.source = true, value
		value = value[bytes.LastIndexByte(value, '/')+1:]
	}
	d.Add([]byte(name))
	d.Add(value)
}

// Mark is the mark of what was added.
func (d *Digest) Mark() (m Mark) {
	if !d.ours {
		return m
	}
	copy(m[:], d.hash.Sum(nil))
	return m
}

// Found is what was added, as an entry of a log.
func (d *Digest) Found(offset int64) Found {
	return Found{Offset: offset, Mark: d.Mark(), Source: string(d.source)}
}
