package kafka

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A topic is deleted with batches on their way, and created again with fewer partitions. Break caught: batches of
// partitions that are gone which stop the topic, and in the end the relay; records that are sent again and not counted
// as possible duplicates. Seen to fail with the engine's partitions left as they are, and with nothing counted.
func TestTopicThatIsCreatedAgainWithFewerPartitionsHeals(t *testing.T) {
	c := newFake(t)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.Hooks = o.hooks() })
	e := sink.New(d, sink.Config{MaxEvents: 90})
	t.Cleanup(func() { _ = e.Abandon(testContext(t)) })
	records := func(round int) (records []*sink.Record) {
		for i := range 30 {
			r := newBatch(d, "t", 0, fmt.Sprint(round)).Records[0]
			r.Topic, r.Key, r.Cost = "t", fmt.Append(nil, i), 100
			records = append(records, r)
		}
		return records
	}
	timeouts := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1} // appended
	remove := c.Fault(timeouts).Remove
	submit := func(round int) {
		t.Helper()
		if _, err := e.Submit(testContext(t), records(round)); err != nil {
			t.Fatal(err)
		}
	}
	awaitTopic(t, d, "t")
	submit(1)
	harness.Eventually(t, patience, "batches of all partitions that may have been written", func(context.Context) string {
		if s := e.Status(); s.Waiting < 30 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	submit(2)
	admin := newAdmin(t, c.ListenAddrs())
	if _, err := admin.DeleteTopics(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopics(testContext(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	remove()
	submit(3)
	last := map[string]string{}
	for n := 0; n < 90; {
		results, err := e.Results(testContext(t), nil)
		if err != nil {
			t.Fatalf("results: %v after %d; status %+v", err, n, e.Status())
		}
		n += len(results)
		for _, r := range results {
			if r.Result != sink.Published || r.Partition != 0 || string(r.Value) <= last[string(r.Key)] {
				t.Errorf("key %s: got result %d of %s in partition %d after %q", r.Key, r.Result, r.Value, r.Partition,
					last[string(r.Key)])
			}
			last[string(r.Key)] = string(r.Value)
		}
		e.Settled(results)
	}
	gone := 0
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.resets {
		if r.Cause == "PARTITION_GONE" && r.Partition > 0 {
			gone += r.Uncertain
		}
	}
	if counted := d.Stats().PossibleDuplicates; gone == 0 || counted < uint64(gone) {
		t.Errorf("possible duplicates: got %d of partitions that are gone, %d in all; want some, and all counted", gone,
			counted)
	}
}
