package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// load submits numbered records of many keys at a steady pace, 5,000 a second while the window has room, while a test
// breaks things.
type load struct {
	topic  string
	driver *Driver
	engine *sink.Engine

	submitted int // by pump; the test may read it after quiet
	first     int // the first number that finish looks for
	grown     bool
	alarms    []string // the kinds that finish expects
	published chan int // how many were, once the engine is closed

	cancel  context.CancelFunc // ends pump
	stopped chan struct{}      // closed when pump has ended
}

const (
	loadKeys   = 500
	loadWindow = 2000
	loadStep   = 50 // records
	loadEvery  = 10 * time.Millisecond
)

// startLoad begins to submit to the topic by a driver of the configuration. The test ends it by finish.
func startLoad(t *testing.T, topic string, config Config) *load {
	t.Helper()
	d, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{
		topic: topic, driver: d, engine: sink.New(d, sink.Config{MaxEvents: loadWindow}), published: make(chan int, 1),
	}
	go func() { l.published <- settleAll(t, context.Background(), l.engine) }()
	l.begin(t)
	t.Cleanup(func() { l.end(t) }) // a test that failed did not
	l.catchUp(t)
	return l
}

// begin submits until quiet or end.
func (l *load) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.stopped = cancel, make(chan struct{})
	go l.pump(t, ctx)
}

func (l *load) pump(t *testing.T, ctx context.Context) {
	defer close(l.stopped)
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for {
		batch := make([]*sink.Record, loadStep)
		for i := range batch {
			n := l.submitted + i
			batch[i] = numbered(l.topic, n, n%loadKeys)
		}
		taken, err := l.engine.Submit(ctx, batch)
		l.submitted += taken
		if err != nil && ctx.Err() == nil {
			t.Errorf("submit after %d records: %v", l.submitted, err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// quiet stops submitting and waits until everything is settled.
func (l *load) quiet(t *testing.T) {
	t.Helper()
	l.cancel()
	<-l.stopped
	awaitSettled(t, l.engine)
}

// catchUp waits until everything that was submitted before the call has its result, and says how long that took.
func (l *load) catchUp(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	harness.Eventually(t, time.Minute, "the records submitted so far are published", func(context.Context) string {
		if s := l.engine.Status(); s.Pending > 0 && s.Oldest >= time.Since(began) {
			return fmt.Sprintf("%+v; driver %+v", s, l.driver.Stats())
		}
		return ""
	})
	return time.Since(began)
}

// end stops submitting and closes the engine.
func (l *load) end(t *testing.T) {
	l.cancel()
	<-l.stopped
	if err := l.engine.Close(testContext(t)); err != nil {
		t.Errorf("close: %v", err)
	}
}

// finish stops submitting and judges: each record is in the topic once, each key in order, as another client reads it,
// and the driver never had to doubt it. It returns how many records there were.
func (l *load) finish(t *testing.T, brokers []string) int {
	t.Helper()
	l.quiet(t)
	l.end(t)
	if got := <-l.published; got != l.submitted {
		t.Errorf("published: got %d, want %d", got, l.submitted)
	}
	wantEachOnceInOrder(t, brokers, judged{topic: l.topic, first: l.first, end: l.submitted, grown: l.grown})
	wantNoDoubts(t, l.driver, l.alarms...)
	return l.submitted
}

// wantNoDoubts checks that the driver counts no record that may be in the topic twice, and raised these alarms and no
// other.
func wantNoDoubts(t testing.TB, d *Driver, alarms ...string) {
	t.Helper()
	if got := d.Stats().PossibleDuplicates; got != 0 {
		t.Errorf("possible duplicates: got %d, want none", got)
	}
	var kinds []string
	for _, a := range d.Alarms() {
		kinds = append(kinds, a.Kind)
	}
	if !slices.Equal(kinds, alarms) {
		t.Errorf("alarms: got %+v, want %q", d.Alarms(), alarms)
	}
}

// awaitSettled waits until everything that was submitted is settled.
func awaitSettled(t testing.TB, e *sink.Engine) {
	t.Helper()
	ctx := testContext(t)
	for e.Status().Events > 0 {
		if pause(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("not all came back: %+v", e.Status())
		}
	}
}

// numbered is record number n of a key; the number is in the value.
func numbered(topic string, n, key int) *sink.Record {
	return &sink.Record{
		Topic: topic, Key: fmt.Appendf(nil, "key-%d", key), Value: strconv.AppendInt(nil, int64(n), 10),
		Timestamp: time.Now().UnixMilli(), Cost: 100, Owner: n,
	}
}

// settleAll settles what comes back until the engine is closed, and returns how many were published.
func settleAll(t testing.TB, ctx context.Context, e *sink.Engine) int {
	published := 0
	var batch []*sink.Record
	for {
		var err error
		batch, err = e.Results(ctx, batch[:0])
		if err != nil {
			return published
		}
		for _, r := range batch {
			if r.Result == sink.Published {
				published++
			} else {
				t.Errorf("record %s: got result %d, reason %v", r.Value, r.Result, r.Reason)
			}
		}
		e.Settled(batch)
	}
}

// judged is the expected content of a topic: the numbers from first to end-1.
type judged struct {
	topic      string
	first, end int
	grown      bool // the topic got more partitions: keys moved, and are in order within each partition only
}

// wantEachOnceInOrder reads the topic with another client: each number once, rising within a key.
func wantEachOnceInOrder(t testing.TB, brokers []string, want judged) {
	t.Helper()
	times := make([]uint8, want.end-want.first)
	last := make(map[string]int)
	total, duplicated, reordered, lost := 0, 0, 0, 0
	harness.Consume(t, brokers, []string{want.topic}, func(r *kgo.Record) {
		number, err := strconv.Atoi(string(r.Value))
		if err != nil || number < want.first || number >= want.end {
			t.Errorf("value %q: want a number from %d to %d", r.Value, want.first, want.end-1)
			return
		}
		total++
		if times[number-want.first]++; times[number-want.first] > 1 {
			duplicated++
		}
		lane := string(r.Key)
		if want.grown {
			lane += fmt.Sprint("/", r.Partition)
		}
		if before, seen := last[lane]; seen && number <= before {
			reordered++
		}
		last[lane] = number
	})
	for _, k := range times {
		if k == 0 {
			lost++
		}
	}
	text := fmt.Sprintf("topic with %d records: %d lost, %d duplicated, %d out of order", total, lost, duplicated,
		reordered)
	if lost != 0 || duplicated != 0 || reordered != 0 {
		t.Errorf("%s; want %d records and none of these", text, len(times))
		return
	}
	t.Log(text)
}
