package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
)

// appendNumbered appends n records to a partition, numbered from the given one: in the header n, with the partition in
// the header p. All bear the time.
func appendNumbered(t *testing.T, client *kgo.Client, partition int32, from, n int, at time.Time) {
	t.Helper()
	for i := from; i < from+n; i++ {
		r := &kgo.Record{Topic: "t", Partition: partition, Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "other", Value: []byte("x")}, {Key: "p", Value: fmt.Append(nil, partition)},
			{Key: "n", Value: fmt.Append(nil, i)}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatalf("append to partition %d: %v", partition, err)
		}
	}
}

// A topic is read back after a crash. Breaks it catches: a first offset that is passed over or not heeded, in each of
// the three ways to have one; records, or headers, taken for others; a reading that goes on to what is appended in the
// meantime, for as long as something is. Seen to fail with the end too high by 1000 and too low by one, with the start
// too high by one, with the time not heeded, with the headers exchanged, and with an offset behind the end taken for
// an empty rest.
func TestTailReadsFromItsStartToTheEndItFound(t *testing.T) {
	fake := newFake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	young := time.Now()
	for p := range int32(3) {
		appendNumbered(t, client, p, 0, 20, young.Add(-time.Hour))
		appendNumbered(t, client, p, 20, 10, young)
	}
	d := newDriver(t, fake.ListenAddrs(), nil)
	for name, c := range map[string]struct {
		from  map[int32]int64
		since time.Time
		first [3]int // number of the first record, by partition
	}{
		"everything":   {first: [3]int{0, 0, 0}},
		"from offsets": {from: map[int32]int64{0: 7, 2: 30}, first: [3]int{7, 0, 30}},
		"from offsets and time": {from: map[int32]int64{0: 7}, since: young.Add(-time.Minute),
			first: [3]int{7, 20, 20}},
		"from offsets of a topic before": {from: map[int32]int64{0: 31, 1: 1000, 2: 30}, first: [3]int{0, 0, 30}},
		"nothing so young":               {since: young.Add(time.Hour), first: [3]int{30, 30, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := map[string]int{}, map[string]int{}
			for p, first := range c.first {
				for n := first; n < 30; n++ {
					want[fmt.Sprintf("%d of %d", n, p)] = 1
				}
			}
			query := sink.TailQuery{Topic: "t", From: c.from, Since: c.since, Headers: [sink.TailHeaders]string{"n", "p"}}
			err := d.Tail(testContext(t), query, func(r sink.TailRecord) error {
				n, p := string(r.Headers[0]), string(r.Headers[1])
				got[n+" of "+p]++
				if p != fmt.Sprint(r.Partition) || n != fmt.Sprint(r.Offset) {
					t.Errorf("got record %s of partition %s as offset %d of partition %d", n, p, r.Offset, r.Partition)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}

	t.Run("appended meanwhile", func(t *testing.T) {
		read := 0
		err := d.Tail(testContext(t), sink.TailQuery{Topic: "t", From: map[int32]int64{0: 30, 1: 30, 2: 25}},
			func(r sink.TailRecord) error {
				if read++; r.Partition == 2 {
					appendNumbered(t, client, 2, 30, 1, young)
				}
				return nil
			})
		if err != nil || read != 5 {
			t.Errorf("got %d records, %v; want the 5 that were there", read, err)
		}
	})

	stop := errors.New("enough")
	if err := d.Tail(testContext(t), sink.TailQuery{Topic: "t"}, func(sink.TailRecord) error {
		return stop
	}); !errors.Is(err, stop) {
		t.Errorf("error of the one who takes the records: got %v, want it back", err)
	}
	none := func(sink.TailRecord) error { t.Error("got a record of a topic that does not exist"); return nil }
	if err := d.Tail(testContext(t), sink.TailQuery{Topic: "absent"}, none); err != nil {
		t.Errorf("a topic that does not exist: got %v, want it empty", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Tail(ended, sink.TailQuery{Topic: "t"}, none); err == nil {
		t.Error("a read that was ended: got no error, want one, or its caller would take the topic for read")
	}
}

// A crash can leave more in one partition than one fetch brings. Break it catches: what is behind the first fetch is
// not read, and sent again. Seen to fail with only the first fetch read.
func TestTailReadsMoreThanOneFetch(t *testing.T) {
	fake := newFake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const size = 100 << 10
	n := 5 * tailFetchBytes / 2 / size // two fetches and a half
	for i := range n {
		r := &kgo.Record{Topic: "t", Partition: 1, Value: make([]byte, size), Headers: []kgo.RecordHeader{
			{Key: "n", Value: fmt.Append(nil, i)}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var fetches atomic.Int64
	fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	read := 0
	err = newDriver(t, fake.ListenAddrs(), nil).Tail(testContext(t), sink.TailQuery{Topic: "t",
		Headers: [sink.TailHeaders]string{"n"}},
		func(r sink.TailRecord) error {
			if got := string(r.Headers[0]); got != fmt.Sprint(read) || r.Offset != int64(read) || r.Partition != 1 {
				t.Errorf("record %d: got number %s at offset %d of partition %d", read, got, r.Offset, r.Partition)
			}
			read++
			return nil
		})
	if err != nil || read != n {
		t.Errorf("got %d records, %v; want %d", read, err, n)
	}
	if got := fetches.Load(); got < 3 {
		t.Errorf("the partition was read by %d fetches, want at least 3: the test shows nothing", got)
	}
}
