package recordset

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// goldenRecords are records with every null and empty that the format tells apart.
func goldenRecords() []*sink.Record {
	headers := outbox.HeadersIn(nil)
	headers.Add("id", []byte("7"))
	headers.Add("n", nil)
	headers.Add("e", []byte{})
	return []*sink.Record{
		{Key: []byte("k"), Value: []byte("v"), Headers: headers, Timestamp: 1_700_000_000_000},
		{Key: nil, Value: nil, Timestamp: 1_700_000_000_100},
		{Key: []byte{}, Value: []byte{}, Timestamp: 1_699_999_999_999},
	}
}

// golden is the set of goldenRecords under producer 0x0102, epoch 3, sequence 9, written by hand after Kafka's "Message
// Format"; the CRC was computed by another program (Python, bit by bit, polynomial 0x82f63b78 reflected).
var golden = strings.Join([]string{
	"00000060",         // length of the set: 96
	"0000000000000000", // base offset
	"00000054",         // length of the batch behind this field: 84
	"ffffffff",         // partition leader epoch
	"02",               // magic
	"455db8f8",         // CRC of what follows
	"0000",             // attributes
	"00000002",         // last offset delta
	"0000018bcfe56800", // base timestamp 1700000000000
	"0000018bcfe56864", // max timestamp 1700000000100
	"0000000000000102", // producer id
	"0003",             // producer epoch
	"00000009",         // base sequence
	"00000003",         // records
	"2600000002" + "6b" + "02" + "76" + "06" + // 19 bytes: no attributes, +0 ms, +0, key "k", value "v", 3 headers
		"04" + "6964" + "02" + "37" + // id: 7
		"02" + "6e" + "01" + // n: null
		"02" + "65" + "00", // e: empty
	"0e00c80102010100", // 7 bytes: +100 ms, +1, null key, null value, no headers
	"0c000104000000",   // 6 bytes: -1 ms, +2, empty key, empty value, no headers
}, "")

// Breaks when any field of the format is written at another place, in another order, or with another encoding; also
// when a change of the encoder and of the test's decoder cancel out, as this one was made by hand.
func TestRecordSetIsByteForByteKafkasFormat(t *testing.T) {
	got := hex.EncodeToString(appendRecordSet(nil, goldenRecords(), Stamp{Producer: 0x0102, Epoch: 3, Sequence: 9}, nil))
	if got != golden {
		t.Errorf("record set:\n got %s\nwant %s", got, golden)
	}
}

// decoded is a record as an independent decoder reads it.
type decoded struct {
	Key, Value []byte
	Headers    []kmsg.Header
	Timestamp  int64
}

// decode reads a record set with franz-go's decoder and checks all that does not depend on the records.
func decode(t *testing.T, set []byte, s Stamp, n int) []decoded {
	t.Helper()
	if got := int(set[0])<<24 | int(set[1])<<16 | int(set[2])<<8 | int(set[3]); got != len(set)-Prefix {
		t.Fatalf("length of the set: got %d, want %d", got, len(set)-Prefix)
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(set[Prefix:]); err != nil {
		t.Fatalf("decode the batch: %v", err)
	}
	type header struct {
		length, leader, lastDelta, sequence, records int32
		magic                                        int8
		attributes, epoch                            int16
		offset, producer                             int64
		crc                                          uint32
	}
	got := header{b.Length, b.PartitionLeaderEpoch, b.LastOffsetDelta, b.FirstSequence, b.NumRecords, b.Magic,
		b.Attributes, b.ProducerEpoch, b.FirstOffset, b.ProducerID, uint32(b.CRC)}
	want := header{int32(len(set) - Prefix - 12), -1, int32(n - 1), s.Sequence, int32(n), 2, 0, s.Epoch, 0, s.Producer,
		crc32.Checksum(set[Prefix+21:], crc32.MakeTable(crc32.Castagnoli))}
	if got != want {
		t.Fatalf("batch header: got %+v, want %+v", got, want)
	}
	var records []decoded
	latest := int64(math.MinInt64)
	rest := b.Records
	for i := range n {
		var r kmsg.Record
		length, used := uvarint(rest)
		if err := r.ReadFrom(rest[:used+length]); err != nil {
			t.Fatalf("decode record %d: %v", i, err)
		}
		rest = rest[used+length:]
		if int(r.OffsetDelta) != i || r.Attributes != 0 {
			t.Fatalf("record %d: got offset delta %d and attributes %d, want %d and 0", i, r.OffsetDelta, r.Attributes, i)
		}
		d := decoded{r.Key, r.Value, r.Headers, b.FirstTimestamp + r.TimestampDelta64}
		latest = max(latest, d.Timestamp)
		records = append(records, d)
	}
	if len(rest) != 0 {
		t.Fatalf("%d bytes behind the last record", len(rest))
	}
	if b.MaxTimestamp != latest {
		t.Fatalf("max timestamp: got %d, want %d", b.MaxTimestamp, latest)
	}
	return records
}

// uvarint reads a zig-zag varint of a length.
func uvarint(b []byte) (value, used int) {
	var z uint64
	for shift := 0; ; shift += 7 {
		z |= uint64(b[used]&0x7f) << shift
		used++
		if b[used-1] < 0x80 {
			return int(z >> 1), used
		}
	}
}

// wantRecords compares what was decoded with what was encoded; null and empty differ.
func wantRecords(t *testing.T, got []decoded, records []*sink.Record) {
	t.Helper()
	for i, r := range records {
		want := decoded{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for k, v := range r.Headers.All() {
			want.Headers = append(want.Headers, kmsg.Header{Key: k, Value: v})
		}
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Fatalf("record %d (-want +got):\n%s", i, diff)
		}
	}
}

// Breaks when Size is less than what a record takes (batches would exceed the limit), or more than the slack too much
// (a record of exactly the limit would be blamed).
func TestSizeBoundsWhatARecordTakes(t *testing.T) {
	for _, n := range []int{0, 1, 40, 63, 64, 127, 128, 8191, 8192, 1 << 20} {
		for _, nulls := range []bool{true, false} {
			r := &sink.Record{Key: bytes.Repeat([]byte("k"), n/8), Value: bytes.Repeat([]byte("v"), n), Timestamp: 1}
			if nulls {
				r.Key = nil
			}
			r.Headers.Add("id", []byte("1"))
			alone := len(appendRecordSet(nil, []*sink.Record{r}, Stamp{}, nil)) - Prefix - Overhead
			if got := Alone(r); got != alone {
				t.Errorf("value of %d bytes alone: got %d, want %d", n, got, alone)
			}
			if got := Bound(r); got != alone+slack {
				t.Errorf("size of a value of %d bytes: got %d, want %d", n, got, alone+slack)
			}
			far := len(appendRecord(nil, r, math.MinInt64, math.MaxInt32))
			if far > Bound(r) {
				t.Errorf("value of %d bytes with the largest deltas: takes %d bytes, size is %d", n, far, Bound(r))
			}
		}
	}
}

// Breaks when a sequence runs into negative numbers, or skips or repeats one at the wrap.
func TestSequenceWrapsToZeroAfterTheLargest(t *testing.T) {
	for _, c := range []struct {
		base int32
		n    int
		want int32
	}{{0, 1, 1}, {7, 500, 507}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 5, 3}} {
		if got := After(c.base, c.n); got != c.want {
			t.Errorf("%d records from %d: got next sequence %d, want %d", c.n, c.base, got, c.want)
		}
	}
}

// Breaks when encoding allocates per record, or at all when the buffer is large enough. Seen to fail with a copy of
// each key.
func TestEncodingDoesNotAllocate(t *testing.T) {
	records := benchmarkRecords(500)
	buffer := make([]byte, 0, 1<<20)
	if got := testing.AllocsPerRun(100, func() { appendRecordSet(buffer, records, Stamp{}, nil) }); got != 0 {
		t.Errorf("allocations for 500 records: got %v, want 0", got)
	}
}

func benchmarkRecords(n int) []*sink.Record {
	records := make([]*sink.Record, n)
	for i := range records {
		h := outbox.HeadersIn(nil)
		h.Add("id", []byte(fmt.Sprintf("018f3a5e-0000-7000-8000-%012d", i)))
		h.Add("event_type", []byte("OrderPlaced"))
		h.Add("x-outbox-position", []byte("16/B374D848/0"))
		records[i] = &sink.Record{
			Topic: "orders", Key: []byte(fmt.Sprintf("order-%06d", i%1000)), Headers: h,
			Value: bytes.Repeat([]byte("x"), 250), Timestamp: 1_700_000_000_000 + int64(i),
		}
	}
	return records
}

func BenchmarkEncode(b *testing.B) {
	records := benchmarkRecords(500)
	buffer := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		appendRecordSet(buffer, records, Stamp{}, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
}

// FuzzRecordSetDecodes encodes arbitrary records and reads them back with an independent decoder. Seen to fail with the
// length of the wrong delta, and with null as empty.
func FuzzRecordSetDecodes(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), "h", []byte("x"), int64(1), int64(2), int64(5), int32(0), uint8(0))
	f.Add([]byte{}, []byte{}, "", []byte{}, int64(-1), int64(math.MaxInt64), int64(math.MaxInt64), int32(math.MaxInt32),
		uint8(7))
	f.Add(bytes.Repeat([]byte("k"), 64), bytes.Repeat([]byte("v"), 8200), "long", []byte("x"), int64(1<<41), int64(1),
		int64(0), int32(-1), uint8(2))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte, first, second, producer int64, sequence int32,
		nulls uint8) {
		r := &sink.Record{Key: key, Value: value, Timestamp: first}
		if r.Key == nil {
			r.Key = []byte{}
		}
		if r.Value == nil {
			r.Value = []byte{}
		}
		if nulls&1 != 0 {
			r.Key = nil
		}
		if nulls&2 != 0 {
			r.Value = nil
		}
		if nulls&4 != 0 {
			header = nil
		} else if header == nil {
			header = []byte{}
		}
		for range nulls % 5 {
			r.Headers.Add(name, header)
		}
		records := []*sink.Record{r, {Value: key, Key: []byte("k"), Timestamp: second}, r}
		if records[1].Value == nil {
			records[1].Value = []byte{}
		}
		s := Stamp{Producer: producer, Epoch: int16(sequence), Sequence: sequence}
		prefix := []byte("already there")
		set := appendRecordSet(bytes.Clone(prefix), records, s, nil)
		if !bytes.HasPrefix(set, prefix) {
			t.Fatal("the bytes before the set were changed")
		}
		wantRecords(t, decode(t, set[len(prefix):], s, len(records)), records)
	})
}
