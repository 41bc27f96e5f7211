package sinktest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Flow is an engine on a driver, to which a test sends numbered events.
type Flow struct {
	*sink.Engine
	t    testing.TB
	done atomic.Int64

	mu       sync.Mutex
	failures strings.Builder // guarded by mu
}

func (f *Flow) note(q sink.Request) {
	if q.Err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintln(&f.failures, q.Err)
}

// Failures returns a line for each request that has met trouble, also if it is over.
func (f *Flow) Failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures.String()
}

// Progress is how many records have had a result.
func (f *Flow) Progress() int64 { return f.done.Load() }

// NewFlow makes an engine, which is closed with its driver at the test's end.
func NewFlow(t testing.TB, d sink.Driver) *Flow {
	f := &Flow{t: t}
	f.Engine = sink.New(d, sink.Config{Hooks: sink.Hooks{Request: f.note}})
	t.Cleanup(func() {
		ended, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		_ = f.Close(ended) // the test may have closed it, or left something that cannot be sent
	})
	return f
}

// Events makes n records of 17 keys, numbered in their values and their header id.
func Events(topic string, from, n int) []*sink.Record {
	records := make([]*sink.Record, n)
	for i := range records {
		number := from + i
		r := &sink.Record{
			Topic: topic, Key: fmt.Appendf(nil, "key-%d", number%17), Value: fmt.Appendf(nil, "%09d", number), Cost: 200,
			Timestamp: 1_700_000_000_000,
		}
		r.Headers.Add("id", fmt.Appendf(nil, "%d", number))
		r.Headers.Add(sourceHeader, []byte("system/1/77"))
		records[i] = r
	}
	return records
}

// flowPatience is how long Send waits, with servers that are killed on a busy machine.
const flowPatience = 2 * time.Minute

// Send submits the records and waits until all are published.
func (f *Flow) Send(records []*sink.Record) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), flowPatience)
	defer cancel()
	submitted := make(chan error, 1)
	go func() {
		_, err := f.Submit(ctx, records)
		submitted <- err
	}()
	for done := 0; done < len(records); {
		some, err := f.Results(ctx, nil)
		if err != nil {
			f.t.Errorf("got %d of %d results: %v; status %+v", done, len(records), err, f.Status())
			return
		}
		for _, r := range some {
			if r.Result != sink.Published {
				f.t.Errorf("record %s: got result %d, reason %v; want it published", r.Value, r.Result, r.Reason)
			}
		}
		done += len(some)
		f.done.Add(int64(len(some)))
		f.Settled(some)
	}
	if err := <-submitted; err != nil {
		f.t.Error(err)
	}
}

// WantOnceInOrder checks that the messages are the first n of [Events], each once and in order; those of other writers,
// whose values begin with foreign, may stand between them.
func WantOnceInOrder(t testing.TB, messages []Message, n int) {
	t.Helper()
	next := 0
	for i, m := range messages {
		if strings.HasPrefix(string(m.Value), "foreign") {
			continue
		}
		if want := fmt.Sprintf("%09d", next); string(m.Value) != want {
			t.Fatalf("message %d: got event %s, want %s", i, m.Value, want)
		}
		next++
	}
	if next != n {
		t.Errorf("got %d events, want %d", next, n)
	}
}

// WantFirstsInOrder checks that the first appearances are the n events in order of their keys, and counts the others.
func WantFirstsInOrder(t testing.TB, messages []Message, n int) (duplicates int) {
	t.Helper()
	seen, last := map[string]bool{}, map[string]string{}
	for _, m := range messages {
		value := string(m.Value)
		if seen[value] {
			duplicates++
			continue
		}
		if value <= last[string(m.Key)] {
			t.Errorf("key %s: event %s comes behind %s", m.Key, value, last[string(m.Key)])
		}
		seen[value], last[string(m.Key)] = true, value
	}
	if len(seen) != n {
		t.Errorf("got %d events, want %d", len(seen), n)
	}
	return duplicates
}
