package kafka

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var codecs = []Compression{Gzip, Snappy, LZ4, Zstd}

// attributes is where a record set says its codec.
const attributes = 4 + 21

// Breaks when a compressed batch is compressed again for a resend, or a resend is not the same bytes.
func TestCompressedBatchIsResentUnchanged(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			fake := newFake(t)
			s := newSpy(fake)
			d := newDriver(t, fake.ListenAddrs(), func(c *Config) { c.Compression = codec })
			awaitTopic(t, d, "t")
			b := newBatch(d, "t", 0, strings.Repeat("a", 500), strings.Repeat("b", 500))
			fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1})
			wantVerdict(t, send(t, d, b), sink.Unknown)
			first := b.State.(*attempt).bytes
			wantAccepted(t, send(t, d, b), 0)
			s.wantResentUnchanged(t)
			if got := Compression(binary.BigEndian.Uint16(first[attributes:])); got != codec {
				t.Errorf("batch: got codec %s, want %s", got, codec)
			}
			wantLog(t, fake.ListenAddrs(), "t", 0, strings.Repeat("a", 500), strings.Repeat("b", 500))
		})
	}
}

// Breaks when Kafka's own code cannot read what we compress, in one step or record by record: the first topic keeps the
// batch as it is, after looking through it; the second makes the broker take all records out. Also when franz-go
// cannot.
func TestKafkaReadsEveryCodec(t *testing.T) {
	cluster := harness.Kafka(t)
	for _, store := range []string{"producer", "uncompressed"} {
		topic := cluster.Topic(t, "codec-"+store, 1, map[string]string{"compression.type": store})
		var want []string
		for i, codec := range codecs {
			d := newDriver(t, cluster.Addrs, func(c *Config) { c.Compression = codec })
			var batch []string
			for j := range 2000 {
				batch = append(batch, fmt.Sprintf("%s %d %d %s", codec, i, j, strings.Repeat("x", 100)))
			}
			wantAccepted(t, deliver(t, d, newBatch(d, topic, 0, batch...)), int64(len(want)))
			want = append(want, batch...)
		}
		at := 0
		harness.Consume(t, cluster.Addrs, []string{topic}, func(r *kgo.Record) {
			if at < len(want) && string(r.Value) != want[at] {
				t.Errorf("%s, offset %d: got %.30q, want %.30q", store, r.Offset, r.Value, want[at])
			}
			kept := uint8(0)
			if store == "producer" {
				kept = uint8(codecs[at/2000])
			}
			if got := r.Attrs.CompressionType(); got != kept {
				t.Errorf("%s, offset %d: got codec %d in the log, want %d", store, r.Offset, got, kept)
			}
			at++
		})
		if at != len(want) {
			t.Errorf("%s: got %d records, want %d", store, at, len(want))
		}
	}
}

// Breaks when a record is blamed for a size that it has only before compression, or when a record that compression does
// not help is not blamed, or blamed without its sizes.
func TestLimitCountsCompressedBytes(t *testing.T) {
	cluster := harness.Kafka(t)
	topic := cluster.Topic(t, "compressed-limit", 1, map[string]string{configLimit: "2000"})
	strict := cluster.Topic(t, "plain-limit", 1,
		map[string]string{configLimit: "2000", "compression.type": "uncompressed"})
	d := newDriver(t, cluster.Addrs, func(c *Config) { c.Compression = Zstd })
	awaitTopic(t, d, topic)
	wantAccepted(t, deliver(t, d, newBatch(d, topic, 0, strings.Repeat("x", 100_000))), 0)

	noise := make([]byte, 3000)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise)
	o := deliver(t, d, newBatch(d, topic, 0, string(noise)))
	wantVerdict(t, o, sink.Refused)
	if text := o.Reasons[0].Text; !strings.Contains(text, "is 2000") {
		t.Errorf("reason: got %q, want the limit", text)
	}

	awaitTopic(t, d, strict)
	o = deliver(t, d, newBatch(d, strict, 0, strings.Repeat("x", 100_000)))
	wantVerdict(t, o, sink.Refused)
	if text := o.Reasons[0].Text; !strings.Contains(text, "compression.type") ||
		!strings.Contains(text, "before compression") {
		t.Errorf("reason: got %q, want what the broker compresses by", text)
	}
}
