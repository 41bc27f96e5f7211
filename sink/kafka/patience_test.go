package kafka

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks when requests that are given up can become a load without bound: one after the other without an answer
// between, without growing patience, or in spite of answers that always take long (seen to fail with each of the three
// taken out); or when a request of many batches is given up like one of a few (seen to fail with batches not counted).
func TestPatienceIsBounded(t *testing.T) {
	now := time.Now()
	var p pace
	want := func(what string, want time.Duration) {
		t.Helper()
		if got := p.patience(0, 0, now); got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	want("at first", leastPatience)
	if got := p.patience(0, slowestLink, now); got != leastPatience+time.Second {
		t.Errorf("a request as large as a slow link takes in a second: got %v, want %v", got, leastPatience+time.Second)
	}
	if got := p.patience(100, 0, now); got != leastPatience+200*time.Millisecond {
		t.Errorf("a request of a hundred batches: got %v, want %v", got, leastPatience+200*time.Millisecond)
	}
	p.giveUp(leastPatience, now)
	want("nothing answered since", 0)
	p.took(time.Millisecond, true)
	want("answered since", 2*leastPatience)
	for range 20 {
		p.giveUp(time.Millisecond, now)
		p.took(time.Millisecond, true)
	}
	want("given up many times", mostPatience)
	now = now.Add(calm + time.Second)
	want("after a calm time", leastPatience)
	p.giveUp(time.Millisecond, now)
	now = now.Add(calm + time.Second)
	want("a broker that never answers, after a calm time", leastPatience)
	for range 100 {
		p.took(10*time.Second, true)
	}
	want("slow ones that go alone", leastPatience)
	for range 100 {
		p.took(time.Second, false)
	}
	if got := p.patience(0, 0, now); got < 3900*time.Millisecond || got > usualTimes*time.Second {
		t.Errorf("a broker that usually takes a second: got %v, want %v", got, usualTimes*time.Second)
	}
}

// Breaks when a partition that keeps an answer away keeps the others of the request waiting, when they are written
// twice, or when the request that comes late writes anything (seen to fail with no patience, and with a new sequence
// for the resend).
func TestUnusuallySlowAnswerIsSplit(t *testing.T) {
	c := newFake(t, kfake.NumBrokers(1))
	d := newDriver(t, c.ListenAddrs(), nil)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a")), 0)
	release, handled := make(chan struct{}), make(chan struct{})
	var later atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !later.Swap(true) {
			c.SleepControl(func() { <-release })
			close(handled)
		}
		return nil, nil, false
	})
	batches := []*sink.Batch{newBatch(d, "t", 0, "b"), newBatch(d, "t", 1, "c")}
	for _, b := range batches {
		b.Alone = false
	}
	began := time.Now()
	d.Produce(testContext(t), d.Node("t", 0), batches)
	if took := time.Since(began); took < leastPatience || took > d.config.RequestTimeout {
		t.Errorf("gave up after %v, want more than %v and less than the time-out of %v", took, leastPatience,
			d.config.RequestTimeout)
	}
	for _, b := range batches {
		if o := b.Outcome; o.Verdict != sink.Unknown || !o.Alone || o.Trouble != sink.NoTrouble || o.Err == nil {
			t.Errorf("%s/%d: got %+v, want unknown, to go alone, no trouble, and the cause", b.Topic, b.Partition, o)
		}
		b.Alone = true
	}
	wantAccepted(t, send(t, d, batches[0]), 1)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "d")), 2)
	close(release)
	<-handled
	wantAccepted(t, send(t, d, batches[1]), 0)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "e")), 3)
	wantLog(t, c.ListenAddrs(), "t", 0, "a", "b", "d", "e")
	wantLog(t, c.ListenAddrs(), "t", 1, "c")
	if s := d.Stats(); s.SplitRequests != 1 || s.ProducerResets != 0 {
		t.Errorf("stats: got %+v, want one split request and no reset", s)
	}
}

// Breaks when a leader that is frozen before it has granted a producer id keeps the partitions of the others from their
// first batch. Seen to fail without the bound of the wait: not even sent within 8 seconds.
func TestFrozenLeaderDelaysNoFirstBatchOfAnother(t *testing.T) {
	harness.Full(t)
	c := newFake(t)
	leader, other := c.LeaderFor("t", 0), int32(1)
	if err := c.MoveTopicPartition("t", other, (leader+1)%3); err != nil { // it may have been the same one
		t.Fatal(err)
	}
	asked, thawed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == leader {
			once.Do(func() { close(asked) })
			c.SleepControl(func() { <-thawed })
		}
		return nil, nil, false
	})
	d := newDriver(t, c.ListenAddrs(), nil)
	awaitTopic(t, d, "t")
	first := newBatch(d, "t", 0, "a")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Produce(testContext(t), d.Node("t", 0), []*sink.Batch{first})
	}()
	<-asked
	began := time.Now()
	wantAccepted(t, send(t, d, newBatch(d, "t", other, "b")), 0)
	if took := time.Since(began); took > 10*askPatience {
		t.Errorf("the other leader's first batch took %v, want little more than %v", took, askPatience)
	}
	close(thawed)
	<-ended
	wantAccepted(t, first.Outcome, 0)
	wantAccepted(t, send(t, d, newBatch(d, "t", 0, "c")), 1)
}
