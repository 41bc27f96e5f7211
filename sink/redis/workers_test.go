package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// libraries are the packages of test/node and what they are to the driver.
var libraries = []struct{ module, library string }{
	{"bullmq", redis.LibraryBullMQ}, {"bullmq5", redis.LibraryBullMQ}, {"bull", redis.LibraryBull},
}

// worked is a worker's report on a job.
type worked struct {
	Ready     string
	ID, Name  string
	Data      struct{ N int }
	Timestamp int64
	Opts      struct {
		Attempts int
		Outbox   struct {
			Key     string
			Headers map[string]string
		}
	}
}

func (b *queueBed) port(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(b.server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// worker starts a worker, which is ready.
func (b *queueBed) worker(t *testing.T, module, topic string, environ ...string) (jobs func() []worked) {
	t.Helper()
	n := harness.NewScript(t, "test/node/worker.js", environ, module, b.port(t), topic)
	n.Start()
	all := func() (found []worked) {
		for _, line := range n.Lines() {
			var w worked
			if err := json.Unmarshal([]byte(line), &w); err != nil {
				t.Fatalf("the worker says %s", line)
			}
			found = append(found, w)
		}
		return found
	}
	harness.Eventually(t, time.Minute, "the worker is ready", func(context.Context) string {
		if slices.ContainsFunc(all(), func(w worked) bool { return w.Ready != "" }) {
			return ""
		}
		return "not yet"
	})
	return func() []worked {
		return slices.DeleteFunc(all(), func(w worked) bool { return w.Ready != "" })
	}
}

// does has a library do something with the queue.
func (b *queueBed) does(t *testing.T, module, topic, what string, more ...string) {
	t.Helper()
	n := harness.NewScript(t, "test/node/queue.js", nil, append([]string{module, b.port(t), topic, what}, more...)...)
	n.Start()
	harness.Eventually(t, time.Minute, module+" has done "+what, func(context.Context) string {
		if lines := n.Lines(); !slices.Contains(lines, "done") {
			return fmt.Sprint(lines)
		}
		return ""
	})
}

// numbered are events whose payloads are JSON.
func numbered(topic string, from, n int) []*sink.Record {
	records := sinktest.Events(topic, from, n)
	for i, r := range records {
		r.Value = fmt.Appendf(nil, `{"n": %d}`, from+i)
	}
	return records
}

// wantWorked waits until the worker has had n jobs and checks that it had each once, in order.
func wantWorked(t *testing.T, jobs func() []worked, n int) []worked {
	t.Helper()
	harness.Eventually(t, time.Minute, fmt.Sprintf("the worker has had %d jobs", n), func(context.Context) string {
		if got := len(jobs()); got < n {
			return fmt.Sprint(got)
		}
		return ""
	})
	all := jobs()
	for i, w := range all {
		if w.Data.N != i {
			t.Fatalf("job %d: got %+v, want the event %d", i, w, i)
		}
	}
	if len(all) != n {
		t.Errorf("got %d jobs, want %d", len(all), n)
	}
	return all
}

// A real worker waits at an empty queue, takes what comes and removes it at once, while answers are lost and
// batches come again. Breaks it catches: a job that no worker sees, one that comes twice because its id is not there
// any more, data or options that the library reads otherwise. Seen to fail without the marker, and with the notes
// not read.
func TestRealWorkersTakeEachJobOnceInOrder(t *testing.T) {
	const n = 1000
	for _, c := range libraries {
		t.Run(c.module, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = c.library
			b.config.Options = redis.JobOptions{Attempts: 3, BackoffType: "exponential", BackoffDelay: time.Second,
				RemoveOnComplete: redis.JobKeep{Remove: true}}
			topic := b.topic(t)
			jobs := b.worker(t, c.module, topic)
			f := sinktest.NewFlow(t, b.driver(t))
			for from := 0; from < n; from += 200 {
				if from > 0 {
					b.proxy.LoseAnswers(2)
				}
				f.Send(numbered(topic, from, 200))
				wantWorked(t, jobs, from+200) // and sleeps
			}
			last := wantWorked(t, jobs, n)[n-1]
			if last.ID != "id-999" || last.Name != "999" || last.Timestamp != 1_700_000_000_000 || last.Opts.Attempts != 3 ||
				last.Opts.Outbox.Key != "key-13" || last.Opts.Outbox.Headers["id"] != "999" {
				t.Errorf("the last job: got %+v", last)
			}
			if left := b.client.Keys(t.Context(), "bull:"+topic+":id-*").Val(); len(left) != 0 {
				t.Errorf("got %v left, want all jobs removed", left)
			}
		})
	}
}

// Breaks it catches: attempts and backoff that the workers do not see. Seen to fail without attempts.
func TestFailedJobsAreTriedAgainByTheWorkers(t *testing.T) {
	const n = 50
	for _, c := range libraries {
		t.Run(c.module, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = c.library
			b.config.Options = redis.JobOptions{Attempts: 2, BackoffType: "fixed", BackoffDelay: 20 * time.Millisecond}
			topic := b.topic(t)
			jobs := b.worker(t, c.module, topic, "FAIL_FIRST=1")
			sinktest.NewFlow(t, b.driver(t)).Send(numbered(topic, 0, n))
			harness.Eventually(t, time.Minute, "each job succeeds at its second attempt", func(context.Context) string {
				seen := map[string]bool{}
				for _, w := range jobs() {
					seen[w.ID] = true
				}
				if len(seen) < n {
					return fmt.Sprint(len(seen))
				}
				return ""
			})
		})
	}
}

// Breaks it catches: jobs that a paused queue hands out, or that come in another order, or never, when it goes on. Seen
// to fail with the list of BullMQ 6 for all.
func TestPausedQueueKeepsItsJobs(t *testing.T) {
	for _, c := range libraries {
		t.Run(c.module, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = c.library
			topic := b.topic(t)
			f := sinktest.NewFlow(t, b.driver(t))
			f.Send(numbered(topic, 0, 10))
			b.does(t, c.module, topic, "pause")
			f.Send(numbered(topic, 10, 190))
			jobs := b.worker(t, c.module, topic)
			if got := jobs(); len(got) != 0 {
				t.Errorf("while it is paused: got %d jobs", len(got))
			}
			b.does(t, c.module, topic, "resume")
			f.Send(numbered(topic, 200, 100))
			wantWorked(t, jobs, 300)
		})
	}
}

// Breaks it catches: a counter that the library's own cleaning takes for a job without a queue; an event that comes a
// second time after it. Seen to fail with the counter among the queue's keys.
func TestCleaningLeavesTheCounter(t *testing.T) {
	for _, module := range []string{"bullmq", "bullmq5"} {
		t.Run(module, func(t *testing.T) {
			b := newQueueBed(t)
			topic := b.topic(t)
			d := b.driver(t)
			f := sinktest.NewFlow(t, d)
			f.Send(numbered(topic, 0, 10))
			b.does(t, module, topic, "orphans")
			f.Send(numbered(topic, 10, 10))
			if a := d.Alarms(); len(a) != 0 {
				t.Errorf("alarms: got %+v, want none", a)
			}
			wantWorked(t, b.worker(t, module, topic), 20)
		})
	}
}

// Breaks it catches: a job of another producer that is written over, or that keeps ours from being taken. Seen to
// fail with jobs added whatever is there.
func TestJobsOfOthersStay(t *testing.T) {
	for _, c := range libraries {
		t.Run(c.module, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = c.library
			topic := b.topic(t)
			b.does(t, c.module, topic, "add", "id-5")
			sinktest.NewFlow(t, b.driver(t)).Send(numbered(topic, 0, 10))
			jobs := b.worker(t, c.module, topic)
			harness.Eventually(t, time.Minute, "the worker has had 10 jobs", func(context.Context) string {
				if got := len(jobs()); got < 10 {
					return fmt.Sprint(got)
				}
				return ""
			})
			if first := jobs()[0]; first.ID != "id-5" || first.Name != "foreign" {
				t.Errorf("the first job: got %+v, want the other producer's", first)
			}
			if got := jobs()[1:]; len(got) != 9 || got[4].Data.N != 4 || got[5].Data.N != 6 {
				t.Errorf("got %+v, want the others of ours", got)
			}
		})
	}
}
