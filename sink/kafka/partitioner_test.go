package kafka

import (
	"math/rand/v2"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks when the hash is not the Java clients': these are the vectors of Kafka's UtilsTest.testMurmur2.
func TestMurmur2IsJavas(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q): got %d, want %d", key, got, want)
		}
	}
}

// Breaks when a key's partition differs from what other clients choose: kafka-go's and franz-go's ports of the Java
// partitioner, for keys of all lengths up to 40 and several counts of partitions.
func TestPartitionAgreesWithOtherClients(t *testing.T) {
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	hasher := kgo.KafkaHasher(func(b []byte) uint32 { return murmur2(b) })
	other := kafkago.Murmur2Balancer{}
	d := &Driver{}
	for i := range 5000 {
		key := make([]byte, i%41)
		for j := range key {
			key[j] = byte(random.Uint32())
		}
		for _, n := range []int{1, 2, 3, 12, 50} {
			all := make([]int, n)
			for j := range all {
				all[j] = j
			}
			got := d.Partition(&sink.Record{Key: key}, n)
			if want := other.Balance(kafkago.Message{Key: key}, all...); int(got) != want {
				t.Fatalf("partition of %x in %d: got %d, kafka-go says %d", key, n, got, want)
			}
			if want := hasher(key, n); int(got) != want {
				t.Fatalf("partition of %x in %d: got %d, franz-go says %d", key, n, got, want)
			}
		}
	}
}

// Breaks when records without a key all go to one partition, or each to another (batches of one).
func TestKeylessRecordsSpreadInRuns(t *testing.T) {
	d := &Driver{}
	const n, records = 12, 3840
	var counts [n]int
	changes, last := 0, int32(-1)
	for range records {
		p := d.Partition(&sink.Record{}, n)
		counts[p]++
		if p != last {
			changes++
		}
		last = p
	}
	for p, got := range counts {
		if want := records / n; got < want-stickyRun || got > want+stickyRun {
			t.Errorf("partition %d: got %d records, want %d give or take a run", p, got, want)
		}
	}
	if want := records / 16; changes > want {
		t.Errorf("changes of partition: got %d, want at most %d", changes, want)
	}
}
