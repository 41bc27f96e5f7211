// Package recordset encodes records as Kafka reads them: a batch of format v2, compressed or not, in a buffer that is
// used again. It knows neither partitions nor brokers: whose sequence a batch has, and when no one reads its bytes any
// more, is its caller's business.
package recordset

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Sizes of the record batch format v2 (Kafka documentation, "Message Format"), in bytes.
const (
	Prefix   = 4  // length of the record set, as a Produce request carries it
	Overhead = 61 // everything before the first record, the batch's own length field included

	// slack is the extra space that a record may need inside a batch, compared with its beginning: the time delta up to 10
	// bytes instead of 1, the offset delta up to 5 instead of 1, the length one more because of both.
	slack = 9 + 4 + 1
)

// Positions in the batch, from its first byte.
const (
	atBatchLength = 8
	atCRC         = 17
	atAttributes  = 21
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Stamp identifies a batch to the broker: with an equal stamp and the same number of records it is
// the same batch.
type Stamp struct {
	Producer int64
	Epoch    int16
	Sequence int32 // of the first record; the others follow it, wrapping to 0 after the largest int32
}

// After is the sequence that follows n records from base.
func After(base int32, n int) int32 {
	return int32((int64(base) + int64(n)) & 0x7fffffff)
}

// Encode is the record set of one batch. There must be at least one record; bytes is the sum of their bounds. It writes
// into buffer if that is large enough, otherwise it recycles buffer and takes another one: only the result is valid
// afterwards.
func Encode(buffer []byte, records []*sink.Record, bytes int, s Stamp, codec Compression) []byte {
	if need := bytes + Prefix + Overhead; cap(buffer) < need {
		buffers.keep(buffer)
		buffer = buffers.get(need)
	}
	c := compressorFor(codec)
	buffer = appendRecordSet(buffer, records, s, c)
	if c != nil {
		c.release()
	}
	return buffer
}

// Recycle gives back the buffer of a set that no one reads any more.
func Recycle(set []byte) { buffers.keep(set) }

// appendRecordSet appends a record set of one batch, whose records it compresses if c is not nil. The records' bytes
// are copied; nothing is allocated when dst has room for the set as it is without compression. There must be at least
// one record.
func appendRecordSet(dst []byte, records []*sink.Record, s Stamp, c *compressor) []byte {
	start := len(dst)
	base, latest := records[0].Timestamp, records[0].Timestamp
	for _, r := range records {
		latest = max(latest, r.Timestamp)
	}
	dst = binary.BigEndian.AppendUint32(dst, 0) // length of the set, set below
	dst = binary.BigEndian.AppendUint64(dst, 0) // base offset: the broker's
	dst = binary.BigEndian.AppendUint32(dst, 0) // length of the batch, set below
	dst = binary.BigEndian.AppendUint32(dst, ^uint32(0))
	dst = append(dst, 2)                        // magic
	dst = binary.BigEndian.AppendUint32(dst, 0) // CRC, set below
	dst = binary.BigEndian.AppendUint16(dst, 0) // attributes, set below
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(records)-1))
	dst = binary.BigEndian.AppendUint64(dst, uint64(base))
	dst = binary.BigEndian.AppendUint64(dst, uint64(latest))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Producer))
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.Epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Sequence))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(records)))
	for i, r := range records {
		dst = appendRecord(dst, r, r.Timestamp-base, int64(i))
	}

	codec := None
	if c != nil {
		from := start + Prefix + Overhead
		if section, smaller := c.compress(dst[from:]); smaller {
			dst, codec = dst[:from+len(section)], c.codec
		}
	}

	set := dst[start:]
	binary.BigEndian.PutUint32(set, uint32(len(set)-Prefix))
	batch := set[Prefix:]
	binary.BigEndian.PutUint32(batch[atBatchLength:], uint32(len(batch)-atBatchLength-4))
	binary.BigEndian.PutUint16(batch[atAttributes:], uint16(codec))
	binary.BigEndian.PutUint32(batch[atCRC:], crc32.Checksum(batch[atAttributes:], castagnoli))
	return dst
}

func appendRecord(dst []byte, r *sink.Record, timeDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(recordBody(r, timeDelta, offsetDelta)))
	dst = append(dst, 0) // attributes: none are defined
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(r.Headers.Len()))
	return append(dst, r.Headers.Block()...)
}

// appendBytes appends a length and the bytes; nil is a null, length -1, which an empty slice is not.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// recordBody is the length of a record without its length field.
func recordBody(r *sink.Record, timeDelta, offsetDelta int64) int {
	return 1 + varintLen(timeDelta) + varintLen(offsetDelta) +
		bytesLen(r.Key) + bytesLen(r.Value) +
		varintLen(int64(r.Headers.Len())) + len(r.Headers.Block())
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of v as a zig-zag varint.
func varintLen(v int64) int {
	zigzag := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

// Alone is the exact length of a record as the only one of its batch.
func Alone(r *sink.Record) int {
	body := recordBody(r, 0, 0)
	return varintLen(int64(body)) + body
}

// Bound returns the most bytes that the record adds to a batch, before compression.
func Bound(r *sink.Record) int { return Alone(r) + slack }
