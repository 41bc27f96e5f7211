package recordset

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is a codec of record batches, numbered as in the attributes of a batch (Kafka message format,
// "Record Batch").
type Compression int8

// The codecs.
const (
	None Compression = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var compressionNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

// String is the codec's name as in Kafka's compression.type.
func (c Compression) String() string {
	if !c.Valid() {
		return fmt.Sprintf("Compression(%d)", int8(c))
	}
	return compressionNames[c]
}

// Valid reports whether there is such a codec.
func (c Compression) Valid() bool { return c >= None && int(c) < len(compressionNames) }

// ParseCompression is the codec of a name.
func ParseCompression(name string) (Compression, error) {
	for c, n := range compressionNames {
		if n == name {
			return Compression(c), nil
		}
	}
	return None, fmt.Errorf("compression %q: want one of %s", name, strings.Join(compressionNames[:], ", "))
}

// Bounds on what a codec compresses together, in bytes. They bound its memory, and that of the batch's readers.
const (
	zstdWindow  = 256 << 10
	snappyBlock = 32 << 10 // as the Java producer; a consumer decodes one block at a time
	lz4Block    = 64 << 10
)

// compressor is the state of one codec, for one batch at a time.
type compressor struct {
	codec  Compression
	encode func(dst, src []byte) []byte // appends src, compressed
	out    []byte                       // kept from batch to batch
	broken bool                         // it panicked: its state is unknown
}

// compressors are idle compressors of each codec. Each costs up to about a megabyte, so that a batch should not wait
// for a new one; as many are made as batches are encoded at the same time, which is one per broker, and the garbage
// collector takes those that are not used.
var compressors [len(compressionNames)]sync.Pool

// compressorFor takes a compressor, nil for None.
func compressorFor(c Compression) *compressor {
	if c == None {
		return nil
	}
	if idle, _ := compressors[c].Get().(*compressor); idle != nil {
		return idle
	}
	return newCompressor(c)
}

// release gives the compressor back, without the buffer of a rare giant.
func (c *compressor) release() {
	if c.broken {
		return
	}
	if cap(c.out) > largestKept {
		c.out = nil
	}
	compressors[c.codec].Put(c)
}

func newCompressor(c Compression) *compressor {
	encode := map[Compression]func() func(dst, src []byte) []byte{
		Gzip: gzipEncoder, Snappy: snappyEncoder, LZ4: lz4Encoder, Zstd: zstdEncoder,
	}[c]
	return &compressor{codec: c, encode: encode()}
}

// compress puts the compressed bytes of records in their place, if there are fewer of them, and says so. Bytes that do
// not get fewer stay as they are: a batch is never larger than its records, whatever they hold, and so a limit that the
// plain batch keeps is kept by the compressed one. Nor are bytes at which the codec panics, which would else end each
// process that sends them.
func (c *compressor) compress(records []byte) (compressed []byte, smaller bool) {
	defer func() {
		if recover() != nil {
			c.broken, compressed, smaller = true, records, false
		}
	}()
	c.out = c.encode(c.out[:0], records)
	if len(c.out) >= len(records) {
		return records, false
	}
	return records[:copy(records, c.out)], true
}

func gzipEncoder() func(dst, src []byte) []byte {
	var out appender
	w := gzip.NewWriter(&out)
	return func(dst, src []byte) []byte {
		out.bytes = dst
		w.Reset(&out)
		_, _ = w.Write(src) // an appender has no errors
		_ = w.Close()
		dst, out.bytes = out.bytes, nil
		return dst
	}
}

// appender is an io.Writer to a slice.
type appender struct{ bytes []byte }

// Write is io.Writer.
func (a *appender) Write(p []byte) (int, error) {
	a.bytes = append(a.bytes, p...)
	return len(p), nil
}

// xerialHeader begins the framing of the Java library for snappy, which Kafka's clients use: magic, version 1, readable
// since version 1; then blocks, each behind its length (org.xerial.snappy.SnappyCodec).
const xerialHeader = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

func snappyEncoder() func(dst, src []byte) []byte {
	return func(dst, src []byte) []byte {
		dst = append(dst, xerialHeader...)
		for len(src) > 0 {
			block := src[:min(len(src), snappyBlock)]
			src = src[len(block):]
			at := len(dst)
			dst = grow(dst, 4+s2.MaxEncodedLen(len(block)))
			encoded := s2.EncodeSnappy(dst[at+4:cap(dst)], block)
			binary.BigEndian.PutUint32(dst[at:at+4], uint32(len(encoded)))
			dst = dst[:at+4+len(encoded)]
		}
		return dst
	}
}

// The parts of an LZ4 frame (LZ4 frame format 1.6): version 1, independent blocks of 64 KB, no checksums, as the batch
// has its own. The last byte of the header is a checksum of the two before it.
const (
	lz4Header = "\x04\x22\x4d\x18\x60\x40\x82"
	lz4Plain  = 1 << 31 // in a block's length: the block is not compressed
)

func lz4Encoder() func(dst, src []byte) []byte {
	var c lz4.Compressor
	return func(dst, src []byte) []byte {
		dst = append(dst, lz4Header...)
		for len(src) > 0 {
			block := src[:min(len(src), lz4Block)]
			src = src[len(block):]
			at := len(dst)
			dst = grow(dst, 4+lz4.CompressBlockBound(len(block)))
			n, err := c.CompressBlock(block, dst[at+4:at+4+lz4.CompressBlockBound(len(block))])
			length := uint32(n)
			if err != nil || n == 0 || n >= len(block) {
				n = copy(dst[at+4:at+4+len(block)], block)
				length = uint32(n) | lz4Plain
			}
			binary.LittleEndian.PutUint32(dst[at:at+4], length)
			dst = dst[:at+4+n]
		}
		return binary.LittleEndian.AppendUint32(dst, 0) // the end
	}
}

func zstdEncoder() func(dst, src []byte) []byte {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("kafka: make a zstd encoder: %v", err)) // only wrong options are errors
	}
	return func(dst, src []byte) []byte { return e.EncodeAll(src, dst) }
}

// grow makes room for n more bytes, which it adds to neither length nor content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, max(2*cap(b), len(b)+n)), b...)
}
