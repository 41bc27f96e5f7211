package sink_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// clumsy is a driver that panics when it looks at some records.
type clumsy struct{ *sinktest.Broker }

func (c clumsy) Size(r *sink.Record) int {
	if string(r.Value) == "size" {
		panic("no size")
	}
	return c.Broker.Size(r)
}

func (c clumsy) Partition(r *sink.Record, partitions int) int32 {
	if string(r.Key) == "partition" {
		panic("no partition")
	}
	return c.Broker.Partition(r, partitions)
}

// Break it catches: a process that one record ends, at each start again. The records in front of such a one and those
// of other lanes are published, those behind it held.
func TestAPanicOfADriverCostsItsRecordOnly(t *testing.T) {
	b := sinktest.NewBroker()
	b.SetTopic(topic, 3)
	e := sink.New(clumsy{b}, sink.Config{})
	make1 := func(key, value string) *sink.Record {
		return &sink.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Cost: 1}
	}
	all := []*sink.Record{make1("k", "good"), make1("k", "size"), make1("k", "good"), make1("partition", "good"),
		make1("l", "good")}
	want := []sink.Result{sink.Published, sink.Rejected, sink.Held, sink.Rejected, sink.Published}
	if _, err := e.Submit(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(all); {
		some, err := e.Results(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n += len(some)
	}
	for i, r := range all {
		if r.Result != want[i] || r.Result == sink.Rejected && (r.Reason.Code != "DRIVER_PANIC" || r.Reason.Stack == "") {
			t.Errorf("record %d: got result %d, %v, want %d", i, r.Result, r.Reason, want[i])
		}
	}
	e.Settled(all)
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
