package sink_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Catches: a partition in trouble whose attempts or pauses delay the others of its node.
func TestEnginePartitionInTroubleGoesAlone(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	inRig(t, 4, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if sick.Load() && a.Batch.Partition == 2 {
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true),
				Delay: time.Duration(a.Number-1) * 10 * time.Second}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.submit(in(4)...)
		r.await(3, time.Nanosecond)
		time.Sleep(time.Second) // into its second attempt, which takes 10 s
		for range 20 {
			r.submit(in(4)...)
			r.await(3, time.Nanosecond)
		}
		if s := r.Status(); s.Pending != 21 || s.Troubles != 1 {
			t.Errorf("status: got %+v, want 21 pending and one trouble", s)
		}
		sick.Store(false)
		r.await(21, time.Minute)
	})
}

// Catches: a node that does not answer and holds another node's partitions; back-off missing, or growing without bound.
func TestEngineDeadNodeHoldsNobodyElse(t *testing.T) {
	var dead atomic.Bool
	var attempts atomic.Int64
	dead.Store(true)
	inRig(t, 2, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if a.Node == 0 && dead.Load() {
			attempts.Add(1)
			return sinktest.Plan{Outcome: trouble(sink.NotWritten, sink.ClusterTrouble, false)}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.broker.SetLeader(topic, 1, 1)
		for range 100 {
			r.submit(in(2)...)
			r.await(1, time.Nanosecond)
			time.Sleep(100 * time.Millisecond)
		}
		if n := attempts.Load(); n < 10 || n > 25 { // in 10 s, pauses of up to 1 s
			t.Errorf("attempts at the dead node in 10 s: got %d, want 10 to 25", n)
		}
		dead.Store(false)
		r.await(100, 2*time.Second)
	})
}

// Catches: one partition whose requests are never answered and that so keeps the answers of all others of its node
// away.
func TestEngineFindsThePartitionThatBlocksItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinktest.NewBroker()
		b.SetTopic(topic, 8)
		r := &rig{Engine: sink.New(frozenDriver{Broker: b, partition: 3}, sink.Config{}), t: t, broker: b}
		r.submit(in(8)...)
		r.await(7, 40*time.Second) // two requests of all, at most one of the frozen one
		r.submit(in(8)...)
		r.await(7, 20*time.Second)
		for range 10 {
			r.submit(in(8)...)
			r.await(7, time.Nanosecond)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// Catches: a request that was given up because of one partition, and that the others of it wait for once more; that
// counts as trouble or as a retry, or waits for a back-off; that is split again (seen to fail with batches that are not
// marked as alone, with one that counts as a failure, with partitions that stay with their node's worker, and with a
// node that does not count as well).
func TestEngineSplitsARequestThatTakesUnusuallyLong(t *testing.T) {
	var split bool // what is shared
	config := sink.Config{Backoff: func(int) time.Duration { return time.Hour }}
	config.Hooks.Request = func(q sink.Request) {
		if q.Resent > 0 {
			t.Errorf("%d records count as tried again", q.Resent)
		}
	}
	inRig(t, 8, config, func(a sinktest.Attempt) sinktest.Plan {
		switch slow := a.Batch.Partition == 3; {
		case split && !a.Batch.Alone:
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Unknown, Alone: true}, Delay: 250 * time.Millisecond,
				Written: !slow}
		case slow && !a.Batch.Alone:
			t.Errorf("attempt %d of the slow partition's batch is not alone", a.Number)
		case slow:
			return sinktest.Plan{Delay: 10 * time.Second}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		split = true
		for range 2 { // the second one without those that are alone still
			r.submit(in(8)...)
			r.await(7, 250*time.Millisecond+time.Nanosecond)
		}
		synctest.Wait()
		split = false
		if s := r.Status(); s.State != sink.OK || s.Pending != 2 {
			t.Errorf("status: got %+v, want two pending and no trouble", s)
		}
		for range 10 {
			r.submit(in(8)...)
			r.await(7, time.Nanosecond)
		}
		r.await(12, 21*time.Second) // its first batch, and what came in the meantime
		if n := len(r.broker.Log(topic)); n != 96 {
			t.Errorf("got %d messages in the topic, want 96", n)
		}
	})
}

// Catches: batches with an unknown outcome that are changed (the broker checks), wait for a back-off, or are given up
// when the leader moves.
func TestEngineLeaderMoveCarriesTheUnknownBatch(t *testing.T) {
	for _, kind := range []sink.Trouble{sink.PartitionTrouble, sink.ClusterTrouble} {
		var nodes []int32
		inRig(t, 1, sink.Config{Backoff: func(int) time.Duration {
			return time.Hour
		}}, func(a sinktest.Attempt) sinktest.Plan {
			nodes = append(nodes, a.Node)
			if a.Node == 0 {
				return sinktest.Plan{Outcome: trouble(sink.Unknown, kind, true), Written: true}
			}
			return sinktest.Plan{}
		}, func(t *testing.T, r *rig) {
			r.submit(in(5)...)
			synctest.Wait()
			r.submit(in(5)...)
			r.broker.SetLeader(topic, 0, 1)
			r.await(10, time.Nanosecond)
			synctest.Wait()
			if want := []int32{0, 1, 1}; !slices.Equal(nodes, want) {
				t.Errorf("trouble %d: got attempts at nodes %v, want %v", kind, nodes, want)
			}
			if n := len(r.broker.Log(topic)); n != 10 {
				t.Errorf("trouble %d: got %d messages in the topic, want 10", kind, n)
			}
		})
	}
}

// Break caught: a batch that is sent without a pause for as long as its leader refuses it and the brokers go on to name
// that one: a broken disk, metadata that lag behind. Seen to fail with 2000 attempts in 10 s, when the moment without a
// leader that the driver makes of each refusal counted as a move.
func TestEngineBacksOffFromALeaderThatStaysTheSame(t *testing.T) {
	var attempts atomic.Int64
	var refused chan struct{}
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		attempts.Add(1)
		select {
		case refused <- struct{}{}:
		default: // no one waits any more
		}
		return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true)}
	}, func(t *testing.T, r *rig) {
		refused = make(chan struct{}, 1)
		r.submit(in(1)...)
		for time.Since(r.start) < 10*time.Second {
			<-refused
			synctest.Wait()
			r.broker.SetLeader(topic, 0, -1)
			time.Sleep(5 * time.Millisecond) // the brokers are asked
			r.broker.SetLeader(topic, 0, 0)
		}
		if n := attempts.Load(); n < 10 || n > 25 { // pauses of up to 1 s
			t.Errorf("attempts in 10 s: got %d, want 10 to 25", n)
		}
		if s := r.Status(); s.State != sink.Stalled || s.Troubles != 1 {
			t.Errorf("status: got %+v, want it stalled by one trouble", s)
		}
		synctest.Wait()
		before := attempts.Load()
		r.broker.SetLeader(topic, 0, 1) // no reason to wait any more
		if synctest.Wait(); attempts.Load() != before+1 {
			t.Errorf("attempts at another leader: got %d, want one at once", attempts.Load()-before)
		}
	})
}

// Catches: a first retry that waits although the driver knows better, later ones that do not, pauses out of step.
func TestEngineBacksOff(t *testing.T) {
	for _, kind := range []sink.Trouble{sink.PartitionTrouble, sink.ClusterTrouble} {
		for _, pause := range []bool{false, true} {
			var at []time.Duration
			var start time.Time
			config := sink.Config{Backoff: func(failures int) time.Duration { return time.Duration(failures) * time.Second }}
			inRig(t, 1, config, func(a sinktest.Attempt) sinktest.Plan {
				at = append(at, time.Since(start))
				if a.Number < 5 {
					return sinktest.Plan{Outcome: trouble(sink.Unknown, kind, pause)}
				}
				return sinktest.Plan{}
			}, func(t *testing.T, r *rig) {
				start = time.Now()
				r.submit(in(1)...)
				r.await(1, time.Minute)
				synctest.Wait()
				want := []time.Duration{0, 0, 2 * time.Second, 5 * time.Second, 9 * time.Second}
				if pause {
					want = []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second, 10 * time.Second}
				}
				if !slices.Equal(at, want) {
					t.Errorf("trouble %d, pause %v: got attempts at %v, want %v", kind, pause, at, want)
				}
			})
		}
	}
}

// Catches: partitions in trouble that take all unrecorded credit, so that healthy ones stand still.
func TestEngineKeepsCreditForHealthyPartitions(t *testing.T) {
	const partitions = 20
	inRig(t, partitions, sink.Config{MaxUnrecorded: 1000}, func(a sinktest.Attempt) sinktest.Plan {
		if a.Batch.Partition != 0 {
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true)}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.submit(in(partitions * 500)...)
		r.await(500, time.Second)
	})
}

// Catches: a partition whose answers are slow and that stays in the requests of the others.
func TestEngineSlowPartitionGoesAlone(t *testing.T) {
	inRig(t, 4, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if a.Batch.Partition == 2 {
			return sinktest.Plan{Delay: 5 * time.Second}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.submit(in(4)...)
		r.await(4, 6*time.Second)
		for range 10 { // most of the time a slow request is out; it may be the others' only before the first
			r.submit(in(4)...)
			r.await(3, time.Nanosecond)
			time.Sleep(4900 * time.Millisecond)
			for len(r.results()) > 0 {
			}
		}
	})
}

// Catches: a linger that delays the first record, or lets requests follow each other sooner. Seen to fail with the
// pause after a request left out.
func TestEngineLingerSpacesRequests(t *testing.T) {
	at := requestTimes(t, sink.Config{Linger: 5 * time.Millisecond}, 12)
	if want := []time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond}; !slices.Equal(at,
		want) {
		t.Errorf("requests: got %v, want %v", at, want)
	}
}

// requestTimes is when each request was answered, from the first record on, when one is submitted every millisecond.
func requestTimes(t *testing.T, config sink.Config, records int) (at []time.Duration) {
	t.Helper()
	var start time.Time
	config.Hooks.Request = func(sink.Request) { at = append(at, time.Since(start)) }
	inRig(t, 1, config, nil, func(t *testing.T, r *rig) {
		start = time.Now()
		for range records {
			r.submit(in(1)...)
			time.Sleep(time.Millisecond)
		}
		r.await(records, time.Second)
		synctest.Wait()
	})
	return at
}

// Catches: requests that follow each other at once although what is submitted is old, ones that wait although it is
// not, or longer than they may. Seen to fail with the age not asked for, and with no bound.
func TestEngineMakesLargerRequestsWhenItIsBehind(t *testing.T) {
	for _, c := range []struct{ behind, apart time.Duration }{
		{-time.Hour, time.Millisecond}, {0, time.Millisecond}, {250 * time.Millisecond, 5 * time.Millisecond},
		{time.Hour, 20 * time.Millisecond},
	} {
		at := requestTimes(t, sink.Config{Behind: func() time.Duration { return c.behind }}, 41)
		for i, got := range at {
			if want := time.Duration(i) * c.apart; got != want {
				t.Fatalf("%v behind: request %d after %v, want %v", c.behind, i, got, want)
			}
		}
	}
}

// Catches: a partition that gets all events, and more than go into one batch, and waits for nothing between its
// requests; and one that goes on when most of the credit is used up, in ever smaller batches. Seen to fail with a full
// batch not looked for, and with the credit not asked for.
func TestEngineSendsFullBatchesAtOnceWhenItIsBehind(t *testing.T) {
	const unrecorded = 800
	var at []time.Duration
	var sizes []int
	var start time.Time
	config := sink.Config{MaxUnrecorded: unrecorded, Behind: func() time.Duration { return time.Hour }}
	config.Hooks.Request = func(q sink.Request) { at, sizes = append(at, time.Since(start)), append(sizes, q.Records) }
	inRig(t, 1, config, nil, func(t *testing.T, r *rig) {
		start = time.Now()
		r.submit(in(2000)...)
		time.Sleep(19 * time.Millisecond)
		synctest.Wait()
		sent := 0
		for _, n := range sizes {
			sent += n
		}
		const most = unrecorded * 3 / 4
		if at[len(at)-1] != 0 || sent <= most || sent > most+unrecorded/8 {
			t.Errorf("requests of %v at %v: got %d records, want a little more than %d, at once", sizes, at, sent, most)
		}
	})
}

// Catches: hooks that are not told of a new number of partitions, or count resent records as new.
func TestEngineTellsItsHooks(t *testing.T) {
	var requests []sink.Request
	var from, to int
	config := sink.Config{Hooks: sink.Hooks{
		Request:  func(q sink.Request) { q.Batches = nil; requests = append(requests, q) },
		Rerouted: func(_ string, f, t int) { from, to = f, t },
	}}
	inRig(t, 2, config, func(a sinktest.Attempt) sinktest.Plan {
		if a.Number == 1 {
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.ClusterTrouble, false), Delay: time.Millisecond}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.submit(in(4)...)
		synctest.Wait()
		r.broker.SetTopic(topic, 3)
		r.submit(in(2)...)
		r.await(6, time.Second)
		synctest.Wait()
		if from != 2 || to != 3 || r.Status().Rerouted != 1 {
			t.Errorf("rerouted: got %d to %d, %d times; want 2 to 3, once", from, to, r.Status().Rerouted)
		}
		if len(requests) < 2 {
			t.Fatalf("requests: got %d, want at least 2", len(requests))
		}
		first, second := requests[0], requests[1]
		if first.Records != 4 || first.Resent != 0 || first.Trouble != sink.ClusterTrouble || first.Err == nil ||
			first.Took != time.Millisecond {
			t.Errorf("first request: got %+v, want 4 new records in 1ms, cluster trouble", first)
		}
		if second.Records != 4 || second.Resent != 4 || second.Trouble != sink.NoTrouble || second.Bytes != first.Bytes {
			t.Errorf("second request: got %+v, want 4 resent records, no trouble", second)
		}
	})
}
