package recordset

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/cdc-relay/cdc-relay/sink"
)

var codecs = []Compression{Gzip, Snappy, LZ4, Zstd}

// decompressed returns the records section of a batch as another decoder reads it: the libraries' stream readers, which
// the encoder does not use.
func decompressed(t testing.TB, codec Compression, section []byte) []byte {
	t.Helper()
	var plain []byte
	var err error
	switch codec {
	case None:
		return section
	case Gzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(section)); err == nil {
			plain, err = io.ReadAll(r)
		}
	case Snappy:
		plain, err = xerial.Decode(section)
	case LZ4:
		plain, err = io.ReadAll(lz4.NewReader(bytes.NewReader(section)))
	case Zstd:
		var r *zstd.Decoder
		if r, err = zstd.NewReader(bytes.NewReader(section), zstd.WithDecoderMaxWindow(zstdWindow)); err == nil {
			defer r.Close()
			plain, err = io.ReadAll(r)
		}
	}
	if err != nil {
		t.Fatalf("decompress %s: %v", codec, err)
	}
	return plain
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Break caught: bytes at which a codec panics that end the process, or a compressor that is used again after that.
func TestBatchAtWhichACodecPanicsGoesPlain(t *testing.T) {
	records := benchmarkRecords(3)
	c := &compressor{codec: Zstd, encode: func(dst, _ []byte) []byte { return dst[:cap(dst)+1] }}
	set := appendRecordSet(nil, records, Stamp{}, c)
	if codec, _ := plainSet(t, set); codec != None || !c.broken {
		t.Errorf("codec of the batch: got %s, broken %v, want none, and a compressor that is not used again", codec, c.broken)
	}
	if want := appendRecordSet(nil, records, Stamp{}, nil); !bytes.Equal(set, want) {
		t.Error("the batch is not the one without compression")
	}
}

// plainSet checks what compression must not touch, and gives the set as it would be without compression.
func plainSet(t testing.TB, set []byte) (codec Compression, plain []byte) {
	t.Helper()
	batch := set[Prefix:]
	codec = Compression(binary.BigEndian.Uint16(batch[atAttributes:]))
	if got, want := int(binary.BigEndian.Uint32(set)), len(batch); got != want {
		t.Fatalf("length of the set: got %d, want %d", got, want)
	}
	if got, want := int(binary.BigEndian.Uint32(batch[atBatchLength:])), len(batch)-atBatchLength-4; got != want {
		t.Fatalf("length of the batch: got %d, want %d", got, want)
	}
	if got, want := binary.BigEndian.Uint32(batch[atCRC:]), checksum(batch[atAttributes:]); got != want {
		t.Fatalf("CRC: got %x, want that of the bytes as they are sent, %x", got, want)
	}
	plain = append(bytes.Clone(set[:Prefix+Overhead]), decompressed(t, codec, batch[Overhead:])...)
	inner := plain[Prefix:]
	binary.BigEndian.PutUint32(plain, uint32(len(inner)))
	binary.BigEndian.PutUint32(inner[atBatchLength:], uint32(len(inner)-atBatchLength-4))
	binary.BigEndian.PutUint16(inner[atAttributes:], 0)
	binary.BigEndian.PutUint32(inner[atCRC:], checksum(inner[atAttributes:]))
	return codec, plain
}

// Breaks when a codec's bytes are no frame of that codec, when the CRC is taken before compression, when the attributes
// name another codec, or when a compressor's state leaks from one batch into the next. Seen to fail with the codec left
// out of the attributes.
func TestCompressedBatchesHoldTheSameRecords(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			c := newCompressor(codec)
			for _, n := range []int{3, 500, 1, 3000, 40} { // 3000 are more than a block and a window of each codec
				records := benchmarkRecords(n)
				s := Stamp{Producer: 7, Epoch: 1, Sequence: 9}
				want := appendRecordSet(nil, records, s, nil)
				set := appendRecordSet(nil, records, s, c)
				used, plain := plainSet(t, set)
				if used != codec {
					t.Errorf("%d records: got codec %s in the attributes, want %s", n, used, codec)
				}
				if !bytes.Equal(plain, want) {
					t.Errorf("%d records: the decompressed batch differs from the plain one", n)
				}
				if len(set) > len(want)*2/3 && n > 1 {
					t.Errorf("%d records: got %d bytes of %d, want it smaller", n, len(set), len(want))
				}
			}
		})
	}
}

// Breaks when a batch that does not compress grows over the limit that it kept, or says that it is compressed. Seen to
// fail with the compressed bytes kept though they are more.
func TestBatchesNeverGrowByCompression(t *testing.T) {
	noise := make([]byte, 200<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	for _, codec := range codecs {
		for _, size := range []int{0, 1, 20, 1000, snappyBlock, lz4Block + 1, len(noise)} {
			records := []*sink.Record{{Key: []byte{1}, Value: noise[:size], Timestamp: 1}}
			want := appendRecordSet(nil, records, Stamp{}, nil)
			got := appendRecordSet(nil, records, Stamp{}, newCompressor(codec))
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %d random bytes: got another batch of %d bytes, want the plain one of %d", codec, size, len(got),
					len(want))
			}
		}
	}
}

// Breaks when a codec allocates per record, or at all once its buffers have their size. Seen to fail with a copy of
// each block of lz4.
func TestCompressionDoesNotAllocate(t *testing.T) {
	records := benchmarkRecords(500)
	buffer := make([]byte, 0, 1<<20)
	for _, codec := range codecs {
		c := newCompressor(codec)
		encode := func() { appendRecordSet(buffer, records, Stamp{}, c) }
		encode()
		if raceDetector && codec == Snappy {
			continue // the race detector makes the library's pool of tables forget some
		}
		if got := testing.AllocsPerRun(50, encode); got != 0 {
			t.Errorf("%s: got %v allocations for 500 records, want 0", codec, got)
		}
	}
}

// Breaks when a compressor holds more than its share: each broker that is written to at the same time has one. Seen to
// fail with a window of 8 MiB for zstd.
func TestCompressorsAreSmall(t *testing.T) {
	const many, most = 8, 3 << 20
	records := benchmarkRecords(1500)
	buffer := make([]byte, 0, 1<<20)
	for _, codec := range codecs {
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		var all []*compressor
		for range many {
			c := newCompressor(codec)
			appendRecordSet(buffer, records, Stamp{}, c)
			all = append(all, c)
		}
		each := (int64(heap()) - int64(before)) / many
		runtime.KeepAlive(all)
		t.Logf("%s: %d KiB each", codec, each>>10)
		if each > most {
			t.Errorf("%s: got %d bytes each, want at most %d", codec, each, most)
		}
	}
}

// Breaks when a name is not Kafka's, or stands for another codec.
func TestCompressionNames(t *testing.T) {
	for number, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c, err := ParseCompression(name)
		if err != nil || int(c) != number || c.String() != name {
			t.Errorf("%s: got %s, number %d, error %v, want number %d", name, c, c, err, number)
		}
	}
	if _, err := ParseCompression("brotli"); err == nil || !strings.Contains(err.Error(), "zstd") {
		t.Errorf("brotli: got error %v, want one that names the choices", err)
	}
}

// FuzzCompressionRoundTrip compresses arbitrary bytes, and twice with the same state. It knows the codec only: that a
// larger result is not kept, and that the batch names its codec, are TestBatchesNeverGrowByCompression's and
// TestCompressedBatchesHoldTheSameRecords' to catch.
func FuzzCompressionRoundTrip(f *testing.F) {
	f.Add([]byte("abc"), uint16(1), uint8(0))
	f.Add(bytes.Repeat([]byte("ab"), 100), uint16(900), uint8(3))
	f.Add([]byte{0, 255, 0, 255}, uint16(40000), uint8(2))
	f.Fuzz(func(t *testing.T, seed []byte, times uint16, which uint8) {
		src := bytes.Repeat(seed, 1+int(times)%max(1, 300<<10/max(1, len(seed))))
		if len(src) == 0 {
			return // a batch has records
		}
		codec := codecs[int(which)%len(codecs)]
		c := newCompressor(codec)
		for range 2 {
			if got := decompressed(t, codec, c.encode([]byte("head"), src)[4:]); !bytes.Equal(got, src) {
				t.Fatalf("%s: got %d other bytes, want the %d", codec, len(got), len(src))
			}
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	records := benchmarkRecords(500)
	buffer := make([]byte, 0, 1<<20)
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			c := newCompressor(codec)
			b.ReportAllocs()
			for b.Loop() {
				appendRecordSet(buffer, records, Stamp{}, c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
		})
	}
}
