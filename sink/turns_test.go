package sink_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// costly is a broker of one node whose time for a request is the sum of what the request, each of its batches and each
// of their records costs.
type costly struct {
	swallow
	perRequest, perBatch, perRecord time.Duration

	began    []time.Time
	requests [][]int32 // the partitions of each
	records  int
	batches  int
}

func (c *costly) Node(string, int32) int32 { return 0 }

func (c *costly) Partition(r *sink.Record, n int) int32 {
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	return int32(h.Sum32() % uint32(n))
}

func (c *costly) Produce(_ context.Context, _ int32, batches []*sink.Batch) {
	took := c.perRequest
	var partitions []int32
	for _, b := range batches {
		partitions = append(partitions, b.Partition)
		took += c.perBatch + time.Duration(len(b.Records))*c.perRecord
		c.records += len(b.Records)
		b.Outcome = sink.Outcome{Verdict: sink.Accepted}
	}
	c.began, c.requests = append(c.began, time.Now()), append(c.requests, partitions)
	c.batches += len(batches)
	time.Sleep(took)
}

// drain brings so many records through an engine, of values of some length and a cost, as fast as the window takes
// them. What has a result is settled 40 ms later, as by a journal that waits for company and commits.
func (c *costly) drain(t *testing.T, records, length, cost int, config sink.Config) (rate float64) {
	t.Helper()
	c.changed = make(chan struct{})
	e := sink.New(c, config)
	began := time.Now()
	var settling sync.WaitGroup
	settling.Go(func() {
		for left := records; left > 0; {
			some, err := e.Results(t.Context(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			left -= len(some)
			settling.Go(func() {
				time.Sleep(40 * time.Millisecond)
				e.Settled(some)
			})
		}
	})
	value := make([]byte, length)
	for n := range records {
		r := &sink.Record{Topic: "topic", Key: fmt.Append(nil, n), Value: value, Cost: cost}
		if _, err := e.Submit(t.Context(), []*sink.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	settling.Wait()
	took := time.Since(began)
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return float64(records) / took.Seconds()
}

// The broker needs a millisecond for each batch, the window holds 62 records of a partition, and the clock is fake.
// Breaks it catches: a drain of many partitions whose requests use up all unrecorded credit, so that every other one is
// made of crumbs. Seen to fail with turns not taken: batches of 49 and 41,000 records a second, instead of 70 and
// 56,000.
func TestManyPartitionsAreDrainedInLargeBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &costly{swallow: swallow{partitions: 200}, perRequest: time.Millisecond, perBatch: time.Millisecond,
			perRecord: 3 * time.Microsecond}
		rate := c.drain(t, 100_000, 8, 2700, sink.Config{Behind: func() time.Duration { return time.Minute }})
		if mean := float64(c.records) / float64(c.batches); mean < 58 || rate < 48_000 {
			t.Errorf("200 partitions: got batches of %.1f records and %.0f records/s, want at least 58 and 48,000", mean, rate)
		}
	})
}

// Of large events few fill the window, by their bytes, and what waits for batches that grow is all there is. Breaks it
// catches: batches of hundreds of kilobytes that wait for company. Seen to fail with their bytes not looked at: 23,600
// a second.
func TestBatchesThatAreLargeByBytesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &costly{swallow: swallow{partitions: 12}, perRequest: time.Millisecond, perBatch: 50 * time.Microsecond,
			perRecord: 2 * time.Microsecond}
		rate := c.drain(t, 50_000, 10_000, 22_000, sink.Config{Behind: func() time.Duration { return time.Minute }})
		if rate < 30_000 {
			t.Errorf("events of 10 kB: got %.0f records/s, want at least 30,000", rate)
		}
	})
}

// Breaks it catches: partitions that are left out twice in a row while others get two turns, a request that is cut
// although its batches are large, and a partition that has to wait longer than linger for its next turn because of
// others. Seen to fail with what was left put behind the others, with large batches cut too, and with all of linger
// after a request that left some.
func TestPartitionsTakeTurnsOnlyWhileTheirBatchesAreSmall(t *testing.T) {
	const linger = 20 * time.Millisecond
	for _, shape := range []struct {
		partitions, each int
		requests         []int // the sizes of those of the first turns
	}{
		{20, 100, []int{10, 5, 5}},
		{30, 50, []int{20, 10}},
		{5, 300, []int{5}},
		{20, 40, []int{20}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Bool
			c := &costly{swallow: swallow{partitions: shape.partitions, changed: make(chan struct{})},
				perRequest: time.Millisecond}
			permit := func(time.Time) bool { return open.Load() }
			e := sink.New(c, sink.Config{MaxUnrecorded: 3000, Linger: linger, Permit: permit})
			submit := func() {
				for n, counts := 0, make([]int, shape.partitions); ; n++ {
					r := &sink.Record{Topic: "topic", Key: fmt.Append(nil, n), Cost: 1}
					p := c.Partition(r, shape.partitions)
					if counts[p] == shape.each {
						if slices.Min(counts) == shape.each {
							return
						}
						continue
					}
					counts[p]++
					if _, err := e.Submit(t.Context(), []*sink.Record{r}); err != nil {
						t.Fatal(err)
					}
				}
			}
			go func() {
				for some, err := e.Results(t.Context(), nil); err == nil; some, err = e.Results(t.Context(), some[:0]) {
					e.Settled(some)
				}
			}()
			submit()
			synctest.Wait() // without a permit
			open.Store(true)
			time.Sleep(20 * time.Millisecond) // it asks for its permit again
			synctest.Wait()
			submit() // those that are being sent have work again
			time.Sleep(time.Second)
			synctest.Wait()
			var sizes []int
			seen := map[int32]time.Time{}
			for i, partitions := range c.requests {
				if i < len(shape.requests) {
					sizes = append(sizes, len(partitions))
				}
				for _, p := range partitions {
					if last, known := seen[p]; known && c.began[i].Sub(last) > linger {
						t.Errorf("%v: partition %d: got its next turn after %v, want at most %v", shape, p, c.began[i].Sub(last), linger)
					} else if known && len(seen) < shape.partitions {
						t.Errorf("%v: partition %d has a second turn when %d have had none", shape, p, shape.partitions-len(seen))
					}
					seen[p] = c.began[i]
				}
			}
			if !slices.Equal(sizes, shape.requests) {
				t.Errorf("%v: first requests: got %v partitions", shape, sizes)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
