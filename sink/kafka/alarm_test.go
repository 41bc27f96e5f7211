package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-relay/cdc-relay/sink"
)

// remake deletes a topic and creates it again.
func remake(t *testing.T, c *kfake.Cluster, d *Driver, topic string, partitions int) {
	t.Helper()
	if _, err := newAdmin(t, c.ListenAddrs()).DeleteTopics(testContext(t), topic); err != nil {
		t.Fatal(err)
	}
	if err := d.CreateTopic(testContext(t), topic, partitions, 1); err != nil {
		t.Fatal(err)
	}
	d.refreshSoon()
}

// awaitAlarm waits for an alarm, which comes after the change that it tells of.
func (o *observed) awaitAlarm(t *testing.T) {
	t.Helper()
	told := func() int { // by the hook, which comes after the driver's own list
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.alarms)
	}
	for ctx := testContext(t); told() == 0; {
		if pause(ctx, time.Millisecond) != nil {
			t.Fatal("waited in vain for an alarm")
		}
	}
}

// Breaks when a topic that was deleted and created again is not noticed at its first batch, is told more than once, or
// when offsets that stand still or grow, as of a batch that comes again, count as going back. Seen to fail with an
// offset of 0 passed over.
func TestTopicMadeAnewIsNoticed(t *testing.T) {
	c, d, _, o := sequenceBench(t)
	fault(c, kerr.RequestTimedOut) // appended
	b := newBatch(d, "t", 0, "c")
	wantVerdict(t, send(t, d, b), sink.Unknown)
	wantAccepted(t, send(t, d, b), 2)
	if got := d.Alarms(); len(got) != 0 {
		t.Fatalf("alarms before: got %+v, want none", got)
	}
	remake(t, c, d, "t", 3)
	b = newBatch(d, "t", 0, "d")
	for send(t, d, b).Verdict != sink.Accepted { // the leader may have moved
		if pause(testContext(t), leaderPause) != nil {
			t.Fatalf("outcome: got %+v, want it accepted", b.Outcome)
		}
	}
	wantAccepted(t, b.Outcome, 0)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e")), 1)
	o.wantAlarm(t, d, sink.AlarmOffsetsWentBack, 0, "written at offset 0 although offset 2", "deleted and created again",
		"cdc-relay verify")
}

// Breaks when one record is too few to notice by: the first offset is then the same again, not a lower one. Seen to
// fail so.
func TestTopicMadeAnewAfterOneRecordIsNoticed(t *testing.T) {
	c, d, _, o := sequenceBench(t)
	wantAccepted(t, send(t, d, newBatch(d, "t", 1, "only")), 0)
	remake(t, c, d, "t", 3)
	b := newBatch(d, "t", 1, "again")
	for send(t, d, b).Verdict != sink.Accepted {
		if pause(testContext(t), leaderPause) != nil {
			t.Fatalf("outcome: got %+v, want it accepted", b.Outcome)
		}
	}
	wantAccepted(t, b.Outcome, 0)
	o.wantAlarm(t, d, sink.AlarmOffsetsWentBack, 1, "written at offset 0 although offset 0")
}

// Breaks when a topic that comes back with another number of partitions does not say what that does to keys. Seen to
// fail with no alarm raised.
func TestTopicMadeAnewWithOtherPartitionsSaysSo(t *testing.T) {
	c, d, _, o := sequenceBench(t)
	remake(t, c, d, "t", 5)
	await(t, d, "5 partitions", func() bool { n, _ := d.Partitions("t"); return n == 5 })
	o.awaitAlarm(t)
	o.wantAlarm(t, d, sink.AlarmPartitionChanged, sink.WholeTopic, "5 partitions instead of 3")
}
