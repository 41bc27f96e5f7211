package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
)

// A topic has lost records at its start, and says so by its first offset. Breaks it catches: a start that does not tell
// how many events it may send twice; one that counts what stood in front of where it begins. Seen to fail with the
// log's start not compared, for each of the places from which a partition is read, and with it compared with 0.
func TestTailTellsWhatAPartitionHasLost(t *testing.T) {
	fake := newFake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	young := time.Now()
	for p := range int32(3) {
		appendNumbered(t, client, p, 0, 20, young)
	}
	upTo := kadm.Offsets{}
	upTo.AddOffset("t", 1, 12, -1)
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, fake.ListenAddrs(), nil)
	for name, c := range map[string]struct {
		from  map[int32]int64
		since time.Time
		want  int64
	}{
		"behind the loss":       {from: map[int32]int64{0: 5, 1: 12, 2: 5}},
		"in front of it":        {from: map[int32]int64{0: 5, 1: 4, 2: 5}, want: 8},
		"from a time before it": {from: map[int32]int64{0: 5, 2: 5}, since: young.Add(-time.Hour), want: 12},
		"from the beginning":    {want: 12},
	} {
		lost := int64(0)
		query := sink.TailQuery{Topic: "t", From: c.from, Since: c.since, Gone: func(atMost int64) { lost += atMost }}
		err := d.Tail(testContext(t), query, func(sink.TailRecord) error { return nil })
		if err != nil || lost != c.want {
			t.Errorf("%s: got %d lost, %v; want %d", name, lost, err, c.want)
		}
	}
}
