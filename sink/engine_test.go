package sink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

const topic = "topic"

// rig is an engine on a scripted broker, under a fake clock.
type rig struct {
	*sink.Engine
	t      *testing.T
	broker *sinktest.Broker
	start  time.Time
}

// inRig runs the test in a bubble, which also fails it if a goroutine is left after Close.
func inRig(t *testing.T, partitions int, c sink.Config, answer func(sinktest.Attempt) sinktest.Plan,
	test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := sinktest.NewBroker()
		b.SetTopic(topic, partitions)
		b.Answer = answer
		r := &rig{Engine: sink.New(b, c), t: t, broker: b, start: time.Now()}
		test(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.Close(ctx) // the test may have closed it, or left a request without an answer
		for _, v := range b.Violations() {
			t.Errorf("the broker saw: %s", v)
		}
	})
}

// in makes a keyless record for the partition: the broker takes them in turn, from partition 1 on.
func in(n int) []*sink.Record {
	records := make([]*sink.Record, n)
	for i := range records {
		records[i] = &sink.Record{Topic: topic, Value: fmt.Appendf(nil, "%d", i), Cost: 100}
	}
	return records
}

func keyed(key string, n int) []*sink.Record {
	records := in(n)
	for _, r := range records {
		r.Key = []byte(key)
	}
	return records
}

func (r *rig) submit(records ...*sink.Record) {
	r.t.Helper()
	if _, err := r.Submit(r.t.Context(), records); err != nil {
		r.t.Fatalf("submit: %v", err)
	}
}

// results takes what has a result when everything is at rest, without the fake clock moving.
func (r *rig) results() []*sink.Record {
	r.t.Helper()
	synctest.Wait()
	ended, cancel := context.WithCancel(r.t.Context())
	cancel()
	records, err := r.Results(ended, nil)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.t.Fatalf("results: %v", err)
	}
	return records
}

// await takes n results and settles the published ones; it fails when that takes more than most of fake time.
func (r *rig) await(n int, most time.Duration) []*sink.Record {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), most)
	defer cancel()
	var all []*sink.Record
	for len(all) < n {
		some, err := r.Results(ctx, nil)
		if err != nil {
			r.t.Fatalf("after %v: got %d results, want %d; status %+v", most, len(all), n, r.Status())
		}
		for _, record := range some {
			if record.Result == sink.Published {
				r.Settled([]*sink.Record{record})
			}
		}
		all = append(all, some...)
	}
	return all
}

func trouble(v sink.Verdict, kind sink.Trouble, pause bool) sink.Outcome {
	return sink.Outcome{Verdict: v, Trouble: kind, Pause: pause, Err: errors.New("no luck")}
}

var poison = sink.Outcome{Verdict: sink.Refused,
	Reasons: []*sink.Reason{{Class: outbox.Permanent, Code: "POISON", Text: "poison"}}}

// Catches: a second retry beside the first, which could overtake it; a release while a retry is out.
func TestEngineAllowsOneRetryOfALane(t *testing.T) {
	var accept atomic.Bool
	var never chan struct{}
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		if !accept.Load() {
			return sinktest.Plan{Outcome: poison}
		}
		return sinktest.Plan{Until: never}
	}, func(t *testing.T, r *rig) {
		never = make(chan struct{})
		records := keyed("k", 2)
		r.submit(records[0])
		got := r.results()
		if len(got) != 1 || got[0].Result != sink.Rejected {
			t.Fatalf("results: got %d, want 1 rejected", len(got))
		}
		accept.Store(true)
		g := records[0].Generation
		if err := r.Retry(sink.Lane{Topic: topic, Key: records[0].Key}, g, records[:1]); err != nil {
			t.Fatalf("retry: %v", err)
		}
		synctest.Wait()
		if err := r.Retry(sink.Lane{Topic: topic, Key: records[0].Key}, g, records[1:]); !errors.Is(err, sink.ErrRetryOut) {
			t.Errorf("second retry: got %v, want %v", err, sink.ErrRetryOut)
		}
		if r.Release(sink.Lane{Topic: topic, Key: records[0].Key}, g) {
			t.Error("release with a retry out: got true")
		}
		close(never)
		if got := r.results(); len(got) != 1 || got[0].Result != sink.Published {
			t.Errorf("results of the retry: got %d, want 1 published", len(got))
		}
		if err := r.Retry(sink.Lane{Topic: topic, Key: records[0].Key}, g, records[1:]); err != nil {
			t.Errorf("retry after the first one's results: %v", err)
		}
	})
}

// Catches: a record that can never be sent because it is larger than the window.
func TestEngineAdmitsARecordLargerThanTheWindowAlone(t *testing.T) {
	inRig(t, 1, sink.Config{MaxBytes: 1000}, nil, func(t *testing.T, r *rig) {
		records := in(3)
		records[1].Cost = 5000
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range records {
			if taken, _ := r.Submit(ended, records[i:]); taken != 1 {
				t.Errorf("submit from record %d on: got %d taken, want 1 (status %+v)", i, taken, r.Status())
			}
			r.await(1, time.Second)
		}
	})
}

// Catches: guilt searched for one record after the other, or good records delayed behind the search.
func TestEngineFindsTheGuiltyInFewRequests(t *testing.T) {
	attempts := 0
	records := keyed("k", 1000)
	inRig(t, 1, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
		attempts++
		for _, r := range a.Batch.Records {
			if r == records[777] {
				return sinktest.Plan{Outcome: poison}
			}
		}
		return sinktest.Plan{}
	}, func(t *testing.T, r *rig) {
		for i, record := range records {
			record.Key = fmt.Appendf(nil, "%d", i)
		}
		r.submit(records...)
		r.await(1000, time.Second)
		synctest.Wait()
		for i, record := range records {
			if want := map[bool]sink.Result{true: sink.Rejected, false: sink.Published}[i == 777]; record.Result != want {
				t.Fatalf("record %d: got result %d, want %d", i, record.Result, want)
			}
		}
		if attempts > 14 {
			t.Errorf("attempts: got %d, want at most 14", attempts)
		}
	})
}

// Catches: one request per partition; requests beyond their bound.
func TestEngineSendsOneRequestPerNode(t *testing.T) {
	for _, c := range []struct{ bytes, want int }{{0, 1}, {100, 4}} {
		requests := 0
		config := sink.Config{MaxRequestBytes: c.bytes, Hooks: sink.Hooks{Request: func(sink.Request) { requests++ }}}
		inRig(t, 20, config, nil, func(t *testing.T, r *rig) {
			r.submit(in(20)...) // each 17 or 18 bytes
			r.await(20, time.Second)
			synctest.Wait()
			if requests != c.want {
				t.Errorf("requests with at most %d bytes: got %d, want %d", c.bytes, requests, c.want)
			}
		})
	}
}

// Catches: a state that stays ok, or does not go back; a reason that does not say what.
func TestEngineStatusSaysWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer sink.Outcome
		state  sink.State
		reason string
	}{
		{"Partition", trouble(sink.NotWritten, sink.PartitionTrouble, true), sink.Stalled,
			`topic "topic" partition 0, failed attempts: 1: no luck`},
		{"Cluster", trouble(sink.Unknown, sink.ClusterTrouble, true), sink.Stalled,
			`a broker or the network is unavailable (topic "topic" partition 0, failed attempts: 1): no luck`},
		{"Configuration", trouble(sink.NotWritten, sink.ConfigurationTrouble, true), sink.Blocked,
			`the brokers do not take us (topic "topic" partition 0, failed attempts: 1): no luck`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, 1, sink.Config{}, func(a sinktest.Attempt) sinktest.Plan {
				if a.Number == 1 {
					return sinktest.Plan{Outcome: c.answer}
				}
				return sinktest.Plan{}
			}, func(t *testing.T, r *rig) {
				r.submit(in(1)...)
				synctest.Wait()
				time.Sleep(10 * time.Millisecond)
				s := r.Status()
				if s.State != c.state || s.Reason != c.reason || !s.Since.Equal(r.start) || s.Oldest != 10*time.Millisecond ||
					s.Pending != 1 || s.Unrecorded != 1 {
					t.Errorf("status: got %+v, want %v because %s since the start", s, c.state, c.reason)
				}
				r.await(1, time.Second)
				if s := r.Status(); s.State != sink.OK || s.Reason != "" || s.Pending != 0 || s.Oldest != 0 {
					t.Errorf("status afterwards: got %+v, want ok", s)
				}
			})
		})
	}
	t.Run("Leader", func(t *testing.T) {
		inRig(t, 1, sink.Config{}, nil, func(t *testing.T, r *rig) {
			r.broker.SetLeader(topic, 0, -1)
			r.submit(in(1)...)
			synctest.Wait()
			if s, want := r.Status(), `topic "topic" partition 0: no leader is known`; s.State != sink.Stalled ||
				s.Reason != want {
				t.Errorf("status: got %+v, want stalled because %s", s, want)
			}
			r.broker.SetLeader(topic, 0, 5)
			r.await(1, time.Nanosecond)
		})
	})
}

// unasked is a broker whose cluster cannot be asked for topics.
type unasked struct {
	*sinktest.Broker
	err error
}

func (u unasked) Partitions(string) (int, error) { return 0, u.err }

// whose is an error that knows whose trouble it is.
type whose sink.Trouble

func (whose) Error() string           { return "no luck" }
func (w whose) Trouble() sink.Trouble { return sink.Trouble(w) }

// Catches: a wrong password that counts as a missing topic, so that events are parked and no one is told to act. Seen
// to fail with Troubled not looked at, by all and by Status alone.
func TestEngineStatusKnowsWhoseTroubleAnUnknownTopicIs(t *testing.T) {
	for _, c := range []struct {
		err   error
		state sink.State
		kind  sink.Trouble
	}{
		{errors.New("no luck"), sink.Stalled, sink.TopicTrouble},
		{fmt.Errorf("ask: %w", whose(sink.ClusterTrouble)), sink.Stalled, sink.ClusterTrouble},
		{fmt.Errorf("ask: %w", whose(sink.ConfigurationTrouble)), sink.Blocked, sink.ConfigurationTrouble},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := sink.New(unasked{sinktest.NewBroker(), c.err}, sink.Config{})
			if _, err := e.Submit(t.Context(), in(1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if s := e.Status(); s.State != c.state || !strings.Contains(s.Reason, "no luck") {
				t.Errorf("%v: got %+v, want %v", c.err, s, c.state)
			}
			if r := e.Troubles(); len(r) != 1 || r[0].Kind != c.kind {
				t.Errorf("%v: got troubles %+v, want one of kind %d", c.err, r, c.kind)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = e.Close(ctx) // the record is without a result
		})
	}
}

// Catches: misuse that corrupts the lists instead of stopping the process. Seen to fail without the panic of Settled.
func TestEnginePanicsOnMisuse(t *testing.T) {
	var never chan struct{}
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		return sinktest.Plan{Until: never}
	}, func(t *testing.T, r *rig) {
		never = make(chan struct{})
		records := keyed("k", 1)
		r.submit(records...)
		panics := func(what string, f func()) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", what)
				}
			}()
			f()
		}
		panics("submit of a record that the engine has", func() { r.submit(records...) })
		panics("settled without a result", func() { r.Settled(records) })
		close(never)
		synctest.Wait()
		panics("settled before Results returned it", func() { r.Settled(records) })
		r.results()
		panics("submit before settled", func() { r.submit(records...) })
		r.Settled(records)
		panics("settled twice", func() { r.Settled(records) })
	})
}

// Catches: requests in flight that keep Close from ending, or that it does not wait for.
func TestEngineCloseWaitsThenCutsOff(t *testing.T) {
	for _, c := range []struct {
		grace time.Duration
		err   error
		want  int
	}{{3 * time.Second, nil, 1}, {time.Second, context.DeadlineExceeded, 0}} {
		inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
			return sinktest.Plan{Delay: 2 * time.Second}
		}, func(t *testing.T, r *rig) {
			r.submit(in(1)...)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), c.grace)
			defer cancel()
			if err := r.Close(ctx); !errors.Is(err, c.err) {
				t.Errorf("close with %v: got %v, want %v", c.grace, err, c.err)
			}
			records, err := r.Results(t.Context(), nil)
			if len(records) != c.want || c.want == 0 && !errors.Is(err, sink.ErrClosed) {
				t.Errorf("close with %v: got %d results, %v; want %d", c.grace, len(records), err, c.want)
			}
		})
	}
}

// Catches: an end that another engine on the same driver cannot follow (seen to fail with a driver that was closed).
func TestEngineAbandonLeavesTheDriverOpen(t *testing.T) {
	inRig(t, 1, sink.Config{}, func(sinktest.Attempt) sinktest.Plan {
		return sinktest.Plan{Delay: time.Second}
	}, func(t *testing.T, r *rig) {
		r.submit(in(1)...)
		synctest.Wait()
		if err := r.Abandon(t.Context()); err != nil {
			t.Errorf("abandon: got %v", err)
		}
		r.Engine = sink.New(r.broker, sink.Config{})
		r.submit(in(2)...)
		time.Sleep(2 * time.Second)
		if n := len(r.broker.Log(topic)); n != 3 {
			t.Errorf("records: got %d, want 3", n)
		}
	})
}
