package sink_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// allHeld fails unless every record came back Held, and returns the generation of each key.
func allHeld(t *testing.T, records []*sink.Record) map[string]uint64 {
	t.Helper()
	generations := map[string]uint64{}
	for _, r := range records {
		if r.Result != sink.Held {
			t.Errorf("record of key %q: got result %d, want Held", r.Key, r.Result)
		}
		if (r.Key == nil) != (r.Generation == 0) {
			t.Errorf("record of key %q: got generation %d", r.Key, r.Generation)
		}
		generations[string(r.Key)] = r.Generation
	}
	return generations
}

// silentDriver is brokers that have said nothing yet.
type silentDriver struct{ *sinktest.Broker }

func (silentDriver) Partitions(string) (int, error) { return 0, nil }

// Catches: a topic without an answer of the brokers that is called in trouble itself, so that its events are
// parked though it is the brokers that are silent. Seen to fail with every topic whose partitions are not known in
// trouble of its own.
func TestEngineCallsSilenceTheClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{Engine: sink.New(silentDriver{sinktest.NewBroker()}, sink.Config{}), t: t}
		r.submit(in(2)...)
		synctest.Wait()
		if reports := r.Troubles(); len(reports) != 1 || reports[0].Kind != sink.ClusterTrouble || reports[0].Since.IsZero() {
			t.Errorf("troubles: got %+v, want the cluster's", reports)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// Catches: records of a topic that does not exist which keep their place in the window; later ones that are not given
// back; a lane that is not held, so that a later record overtakes; a retry that is diverted too. Seen to fail with
// nothing told of the topic.
func TestEngineDivertsAnUnknownTopicUntilItIsThere(t *testing.T) {
	inRig(t, 2, sink.Config{MaxEvents: 10}, func(sinktest.Attempt) sinktest.Plan {
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		lost := keyed("k", 8)
		keyless := &sink.Record{Value: []byte("v")}
		for _, rec := range append(lost, keyless) {
			rec.Topic = "absent"
		}
		r.submit(append(lost, keyless)...)
		synctest.Wait()
		if reports := r.Troubles(); len(reports) != 1 || reports[0].Topic != "absent" ||
			reports[0].Partition != sink.WholeTopic || reports[0].Well {
			t.Errorf("troubles: got %+v, want the absent topic", reports)
		}
		r.Divert("absent", sink.WholeTopic, true)
		generation := allHeld(t, r.await(9, time.Nanosecond))["k"]
		r.Settled([]*sink.Record{keyless})
		late := keyed("k", 1)
		late[0].Topic = "absent"
		r.submit(late...)
		allHeld(t, r.await(1, time.Nanosecond))

		r.submit(in(1)...) // the window has room for others
		r.await(1, time.Nanosecond)

		r.broker.SetTopic("absent", 1)
		synctest.Wait()
		if reports := r.Troubles(); len(reports) != 1 || !reports[0].Well || !reports[0].Diverted {
			t.Errorf("troubles once the topic is there: got %+v, want it diverted and well", reports)
		}
		if err := r.Retry(sink.Lane{Topic: "absent", Key: []byte("k")}, generation, append(lost, late...)); err != nil {
			t.Fatal(err)
		}
		for _, rec := range r.await(9, time.Second) {
			if rec.Result != sink.Published {
				t.Errorf("retried: got result %d, want Published", rec.Result)
			}
		}
		r.Divert("absent", sink.WholeTopic, false)
		if !r.Release(sink.Lane{Topic: "absent", Key: []byte("k")}, generation) {
			t.Error("release of a lane of which everything was retried: got false")
		}
		if reports := r.Troubles(); len(reports) != 0 {
			t.Errorf("troubles at the end: got %+v, want none", reports)
		}
	})
}

// Catches: the batch whose outcome is unknown given back with the rest, or changed (the broker checks); the partition's
// lanes not held, so that what comes later overtakes what was given back.
func TestEngineDivertsAPartitionButNotItsUnknownBatch(t *testing.T) {
	sick := true
	inRig(t, 1, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if sick {
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true), Written: a.Number == 1}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		first, second := keyed("k", 3), keyed("k", 3)
		r.submit(first...)
		synctest.Wait()
		r.submit(second...)
		r.Divert(topic, 0, true)
		generation := allHeld(t, r.await(3, time.Nanosecond))["k"]
		sick = false
		for _, rec := range r.await(3, time.Minute) {
			if rec.Result != sink.Published {
				t.Errorf("the unknown batch: got result %d, want Published", rec.Result)
			}
		}
		r.Divert(topic, 0, false)
		third := keyed("k", 1)
		r.submit(third...)
		allHeld(t, r.await(1, time.Nanosecond))
		if err := r.Retry(sink.Lane{Topic: topic, Key: []byte("k")}, generation, append(second, third...)); err != nil {
			t.Fatal(err)
		}
		r.await(4, time.Second)
		if n := len(r.broker.Log(topic)); n != 7 {
			t.Errorf("messages in the topic: got %d, want 7", n)
		}
	})
}

// Catches: Hold of a lane that is held already which makes its generation stale, and a lane that is not held by it.
func TestEngineHoldsALaneByName(t *testing.T) {
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		generation := r.Hold(sink.Lane{Topic: topic, Key: []byte("k")})
		if again := r.Hold(sink.Lane{Topic: topic, Key: []byte("k")}); again != generation {
			t.Errorf("Hold again: got generation %d, want %d", again, generation)
		}
		held := keyed("k", 2)
		r.submit(held...)
		allHeld(t, r.await(2, time.Nanosecond))
		if r.Release(sink.Lane{Topic: topic, Key: []byte("k")}, generation) {
			t.Error("release with two records outside: got true")
		}
		r.Settled(held)
		if !r.Release(sink.Lane{Topic: topic, Key: []byte("k")}, generation) {
			t.Error("release of an empty lane: got false")
		}
	})
}

// Catches: a request that is started without the permit; one that is never started after it is given again. Seen to
// fail with the permit not asked for.
func TestEngineSendsOnlyWithPermit(t *testing.T) {
	allowed := false
	var mu sync.Mutex
	permit := func(time.Time) bool { mu.Lock(); defer mu.Unlock(); return allowed }
	inRig(t, 2, sink.Config{Permit: permit}, func(sinktest.Attempt) sinktest.Plan {
		if !permit(time.Time{}) {
			t.Error("a request was started without the permit")
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		r.submit(in(4)...)
		time.Sleep(time.Minute)
		if n := len(r.results()); n != 0 {
			t.Errorf("results without the permit: got %d, want none", n)
		}
		mu.Lock()
		allowed = true
		mu.Unlock()
		r.await(4, time.Second)
	})
}

// The batch that was with the driver when the partition was diverted is refused after all. Breaks it catches: parked
// records of the lane that are handed in before the refused one is parked or buried, and so overtake it; one that
// counts as out permanently; a result that says that its lane was held before, or was not, when it is the other way
// round.
func TestEngineResumesOnlyBehindWhatWasGivenBack(t *testing.T) {
	sick := true
	inRig(t, 1, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		switch {
		case sick:
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true)}
		case a.Number > 1 && len(a.Batch.Records) == 2: // the first batch, tried again
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Refused, Guilty: []int{0},
				Reasons: []*sink.Reason{{Class: outbox.Transient, Code: "LATER"}}}}
		}
		return sinktest.Plan{Delay: time.Millisecond} // so that it is out for a while
	}, func(t *testing.T, r *rig) {
		first, behind := keyed("k", 2), keyed("k", 2)
		r.submit(first...)
		synctest.Wait()
		r.submit(behind...)
		r.Divert(topic, 0, true)
		allHeld(t, r.await(2, time.Nanosecond))
		if behind[0].WasHeld || !behind[1].WasHeld {
			t.Errorf("diverted: got WasHeld %t, %t; want false, true", behind[0].WasHeld, behind[1].WasHeld)
		}
		r.Settled(behind) // they are parked
		sick = false
		r.await(2, time.Minute)
		if first[0].Result != sink.Held || first[1].Result != sink.Held || !first[0].WasHeld {
			t.Errorf("the first batch: got %d and %d, WasHeld %t; want both Held, true: the lane is held", first[0].Result,
				first[1].Result, first[0].WasHeld)
		}
		again := keyed("k", 2)
		if err := r.Resume(sink.Lane{Topic: topic, Key: []byte("k")}, again); !errors.Is(err, sink.ErrEarlierOut) {
			t.Errorf("resume before the refused record is settled: got %v, want ErrEarlierOut", err)
		}
		r.Settled(first[:1])
		if err := r.Resume(sink.Lane{Topic: topic, Key: []byte("k")}, again); !errors.Is(err, sink.ErrEarlierOut) {
			t.Errorf("resume before the record behind it is settled: got %v, want ErrEarlierOut", err)
		}
		r.Settled(first[1:])
		late := keyed("k", 1)
		r.submit(late...) // held, and no reason to wait: it comes after all that is parked
		allHeld(t, r.await(1, time.Nanosecond))
		if err := r.Resume(sink.Lane{Topic: topic, Key: []byte("k")}, again); err != nil {
			t.Fatalf("resume: %v", err)
		}
		if err := r.Resume(sink.Lane{Topic: topic, Key: []byte("k")}, keyed("k", 1)); !errors.Is(err, sink.ErrRetryOut) {
			t.Errorf("resume while one is out: got %v, want ErrRetryOut", err)
		}
		for _, rec := range r.await(2, time.Second) {
			if rec.Result != sink.Published {
				t.Errorf("resumed: got result %d, want Published", rec.Result)
			}
		}
		r.Settled(late)
	})
}

// A retry is handed in while the batch in front of it has no answer, and that batch is refused. Catches: the retry sent
// all the same, so that it overtakes what was in the batch.
func TestEngineGivesARetryBackWithWhatWasInFrontOfIt(t *testing.T) {
	sick := true
	inRig(t, 1, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if sick {
			return sinktest.Plan{Outcome: trouble(sink.Unknown, sink.PartitionTrouble, true)}
		}
		if len(a.Batch.Records) == 3 {
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Refused, Guilty: []int{1},
				Reasons: []*sink.Reason{{Class: outbox.Transient, Code: "LATER"}}}}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		first := keyed("k", 3)
		r.submit(first...)
		synctest.Wait()
		r.Hold(sink.Lane{Topic: topic, Key: []byte("k")})
		retry := keyed("k", 2)
		if err := r.Resume(sink.Lane{Topic: topic, Key: []byte("k")}, retry); err != nil {
			t.Fatal(err)
		}
		sick = false
		allHeld(t, r.await(5, time.Minute))
		r.Settled(append(first, retry...))
	})
}

// Catches: an inserted record that waits for the window, for a held lane or with a diverted topic; one whose rejection
// holds its key (each seen to fail with the check for it taken out).
func TestEngineInsertedRecordIsALaneOfItsOwn(t *testing.T) {
	refused := &sink.Reason{Class: outbox.Permanent, Code: "INVALID_RECORD", Text: "no"}
	inRig(t, 1, sink.Config{MaxEvents: 3}, func(a sinktest.Attempt) sinktest.Plan {
		for i, rec := range a.Batch.Records {
			if string(rec.Value) == "bad" {
				return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.Refused, Guilty: []int{i},
					Reasons: []*sink.Reason{refused}}}
			}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		insert := func(name, key, value string) *sink.Record {
			t.Helper()
			rec := &sink.Record{Topic: name, Key: []byte(key), Value: []byte(value)}
			if err := r.Insert(rec); err != nil {
				t.Fatal(err)
			}
			return rec
		}
		want := func(rec *sink.Record, result sink.Result) {
			t.Helper()
			if got := r.await(1, time.Second); got[0] != rec || rec.Result != result {
				t.Fatalf("got result %d of %q, want %d of %q", got[0].Result, got[0].Value, result, rec.Value)
			}
			if result == sink.Rejected {
				r.Settled([]*sink.Record{rec})
			}
		}
		r.Hold(sink.Lane{Topic: topic, Key: []byte("k")})
		want(insert(topic, "k", "behind a hold"), sink.Published)
		want(insert(topic, "free", "bad"), sink.Rejected)
		free := keyed("free", 1)
		r.submit(free...)
		if r.await(1, time.Second); free[0].Result != sink.Published {
			t.Errorf("a record behind a rejected one that was inserted: got result %d, want Published", free[0].Result)
		}

		full := keyed("x", 3)
		for _, rec := range full {
			rec.Topic = "absent"
		}
		r.submit(full...)
		r.Divert("absent", sink.WholeTopic, true)
		allHeld(t, r.await(3, time.Nanosecond)) // they keep their places until they are settled
		diverted := insert("absent", "y", "diverted")
		want(insert(topic, "z", "past the window"), sink.Published)
		r.broker.SetTopic("absent", 1)
		want(diverted, sink.Published)
	})
}

// One partition answers for the topic (codes 3 and 29) while another one takes what it gets. Breaks it catches: the
// whole topic in trouble, so that everything of it is parked (seen to fail so); a topic that accepts nothing any
// more taken for one partition.
func TestEngineTakesNoTopicForIllThatAnotherPartitionAccepts(t *testing.T) {
	ill := func(partition int32) bool { return partition == 0 }
	inRig(t, 2, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		if ill(a.Batch.Partition) {
			return sinktest.Plan{Outcome: trouble(sink.NotWritten, sink.TopicTrouble, true)}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		want := func(when string, partition int32, kind sink.Trouble) {
			t.Helper()
			synctest.Wait()
			if reports := r.Troubles(); len(reports) != 1 || reports[0].Partition != partition ||
				reports[0].Kind != kind && kind != sink.NoTrouble {
				t.Errorf("%s: got troubles %+v, want one, of partition %d", when, reports, partition)
			}
		}
		r.submit(r.to(0, 1)...)
		time.Sleep(time.Second)
		want("nothing else was sent", sink.WholeTopic, sink.NoTrouble)
		r.submit(r.to(1, 1)...)
		r.await(1, time.Second)
		want("another partition has accepted something since", 0, sink.PartitionTrouble)
		ill = func(int32) bool { return true }
		r.submit(r.to(1, 1)...)
		time.Sleep(time.Second)
		want("that one is refused, too", sink.WholeTopic, sink.NoTrouble)
	})
}

// goneDriver knows a topic that the brokers do not know any more.
type goneDriver struct{ *sinktest.Broker }

func (d goneDriver) Partitions(name string) (int, error) {
	n, _ := d.Broker.Partitions(name)
	return n, errors.New("it is gone; create it again")
}

// Break caught: a deleted topic that is in no one's trouble, and so keeps its events in the window and the stream's
// place back, for as long as its last partition has no event. Seen to fail with no trouble told, for want of a time in
// it; with a reason that does not say what the driver says.
func TestEngineTellsOfADeletedTopicWithAPartitionAtRest(t *testing.T) {
	for busy := range int32(4) {
		synctest.Test(t, func(t *testing.T) {
			b := sinktest.NewBroker()
			b.SetTopic(topic, 4)
			for p := range int32(4) {
				b.SetLeader(topic, p, -1)
			}
			r := &rig{Engine: sink.New(goneDriver{b}, sink.Config{}), t: t, broker: b}
			r.submit(r.to(busy, 1)...)
			since := time.Now()
			time.Sleep(time.Minute)
			reports := r.Troubles()
			if len(reports) != 1 || reports[0].Partition != sink.WholeTopic || reports[0].Kind != sink.TopicTrouble ||
				!reports[0].Since.Equal(since) {
				t.Errorf("an event for partition %d: got troubles %+v, want the topic's, since its event", busy, reports)
			}
			if why := r.Status().Reason; !strings.Contains(why, "create it again") ||
				len(reports) == 1 && reports[0].Reason != why {
				t.Errorf("an event for partition %d: got reason %q in the status, want what the driver says", busy, why)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}
