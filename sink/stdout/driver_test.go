package stdout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is a writer whose writes a test can let fail.
type page struct {
	mu     sync.Mutex
	text   bytes.Buffer
	before func(p []byte) (n int, err error) // decides on a write: how much of it is taken; nil: all
}

func (w *page) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = len(p)
	if w.before != nil {
		n, err = w.before(p)
	}
	w.text.Write(p[:n])
	return n, err
}

func (w *page) set(before func([]byte) (int, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// messages reads what was printed, by the rules of the package's documentation.
func (w *page) messages(t *testing.T, topic string) (found []sinktest.Message) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bufio.NewScanner(bytes.NewReader(w.text.Bytes()))
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		if m := message(t, lines.Bytes()); m.Topic == topic {
			found = append(found, m)
		}
	}
	return found
}

func message(t *testing.T, text []byte) sinktest.Message {
	t.Helper()
	var l struct {
		line
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatalf("line %.200q: %v", text, err)
	}
	at, err := time.Parse(time.RFC3339Nano, l.Timestamp)
	if err != nil {
		t.Fatalf("line %.200q: %v", text, err)
	}
	m := sinktest.Message{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Timestamp: at.UnixMilli(),
		Key: unprinted(t, l.Key, l.KeyEncoding)}
	for _, h := range l.Headers {
		m.Headers.Add(h.Key, unprinted(t, h.Value, h.Encoding))
	}
	switch {
	case l.Tombstone:
	case l.Encoding == "":
		m.Value = l.Value
	default:
		var s string
		if err := json.Unmarshal(l.Value, &s); err != nil {
			t.Fatalf("value of line %.200q: %v", text, err)
		}
		m.Value = unprinted(t, &s, l.Encoding)
	}
	return m
}

func unprinted(t *testing.T, s *string, encoding string) []byte {
	t.Helper()
	switch {
	case s == nil:
		return nil
	case encoding == asBase64:
		b, err := base64.StdEncoding.DecodeString(*s)
		if err != nil {
			t.Fatalf("%.100q: %v", *s, err)
		}
		return b
	}
	return []byte(*s)
}

// limited is the driver with a limit for a record, so that there is something to reject, to hold and to release.
type limited struct{ *Driver }

func (limited) Limits(string) (batch, record int) { return batchLimit, batchLimit }

// TestConformance runs the suite of all drivers. There is no broker that could move a partition, lack a topic or reject
// a record in the midst of a batch, so those parts are skipped. Breaks it catches: a batch printed again when it comes
// again, one offset for two lines, a torn line.
func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		var w page
		counts := map[string]int{}
		var mu sync.Mutex
		return sinktest.Fixture{
			Driver: limited{New(Config{Writer: &w, Partitions: func(topic string) int {
				mu.Lock()
				defer mu.Unlock()
				return counts[topic]
			}})},
			Deduplicates: true,
			Topic: func(_ *testing.T, partitions int) string {
				mu.Lock()
				defer mu.Unlock()
				name := fmt.Sprintf("topic-%d", len(counts))
				counts[name] = partitions
				return name
			},
			Read: w.messages,
			LoseAnswers: func(n int) {
				w.set(func(p []byte) (int, error) {
					switch n--; {
					case n < 0:
						return len(p), nil
					case n%2 == 0:
						return len(p), errors.New("the answer is lost") // all was written, and no one knows
					}
					return len(p) / 3, errors.New("the disk is full")
				})
			},
			Outage: func() func() {
				w.set(func([]byte) (int, error) { return 0, errors.New("the disk is full") })
				return func() { w.set(nil) }
			},
		}
	})
}

func batchOf(topic string, partition int32, values ...string) *sink.Batch {
	b := &sink.Batch{Topic: topic, Partition: partition}
	for _, v := range values {
		b.Records = append(b.Records, &sink.Record{Topic: topic, Key: []byte("k"), Value: []byte(v)})
	}
	return b
}

func verdicts(batches ...*sink.Batch) (list []sink.Verdict) {
	for _, b := range batches {
		list = append(list, b.Outcome.Verdict)
	}
	return list
}

// A write may stop at any byte. Breaks it catches: a line that is torn by another batch, bytes printed twice or not at
// all, a batch called written, or certainly not written, that is neither.
func TestInterruptedWriteGoesOnWhereItStopped(t *testing.T) {
	whole := new(page)
	New(Config{Writer: whole}).Produce(t.Context(), 0, []*sink.Batch{batchOf("a", 0, "1", "2"), batchOf("b", 0, "3")})
	New(Config{Writer: whole}).Produce(t.Context(), 0, []*sink.Batch{batchOf("c", 0, "4")})
	want := whole.text.String()
	first := strings.Index(want, `{"topic":"c"`)
	for stop := range first + 1 {
		w := new(page)
		w.set(func([]byte) (int, error) { return stop, syscall.ENOSPC })
		d := New(Config{Writer: w})
		a, b, c := batchOf("a", 0, "1", "2"), batchOf("b", 0, "3"), batchOf("c", 0, "4")
		d.Produce(t.Context(), 0, []*sink.Batch{a, b})
		if a.Outcome.Verdict != sink.Unknown || b.Outcome.Verdict != sink.Unknown ||
			a.Outcome.Trouble != sink.ClusterTrouble || !errors.Is(a.Outcome.Err, syscall.ENOSPC) {
			t.Fatalf("stopped after %d bytes: got %v, %+v; want unknown, trouble of the cluster, the error", stop,
				verdicts(a, b), a.Outcome)
		}
		w.set(nil)
		d.Produce(t.Context(), 0, []*sink.Batch{c})
		d.Produce(t.Context(), 0, []*sink.Batch{b, a})
		for i, batch := range []*sink.Batch{a, b, c} {
			if batch.Outcome.Verdict != sink.Accepted || batch.Outcome.FirstOffset != 0 {
				t.Fatalf("stopped after %d bytes: got %+v for batch %d, want accepted at 0", stop, batch.Outcome, i)
			}
		}
		if got := w.text.String(); got != want {
			t.Fatalf("stopped after %d bytes: got\n%s\nwant\n%s", stop, got, want)
		}
	}
}

// Breaks it catches: a reader that went away taken for a passing trouble, or a short write without error for success.
// Seen to fail with a broken pipe not known.
func TestTroubleOfTheWriter(t *testing.T) {
	for _, c := range []struct {
		err  error
		want sink.Trouble
	}{
		{&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, sink.ConfigurationTrouble},
		{fmt.Errorf("write: %w", os.ErrClosed), sink.ConfigurationTrouble},
		{syscall.EIO, sink.ClusterTrouble},
		{nil, sink.ClusterTrouble}, // and nothing taken
	} {
		w := new(page)
		w.set(func([]byte) (int, error) { return 0, c.err })
		b := batchOf("a", 0, "1")
		New(Config{Writer: w}).Produce(t.Context(), 0, []*sink.Batch{b})
		if o := b.Outcome; o.Verdict != sink.Unknown || o.Trouble != c.want || o.Err == nil || !o.Pause {
			t.Errorf("%v: got %+v, want unknown with trouble %d, a cause and a pause", c.err, o, c.want)
		}
	}
}

// A pager that shows one screen blocks the write for as long as a person reads. Breaks it catches: a Produce that
// cannot be ended then, a batch behind it that is called unknown though it was never begun, one written twice
// afterwards.
func TestBlockedReaderDoesNotBlockTheEnd(t *testing.T) {
	reader, writer := io.Pipe()
	d := New(Config{Writer: writer})
	ended, end := context.WithCancel(t.Context())
	begun, other := batchOf("a", 0, "1"), batchOf("b", 0, "2")
	produced := make(chan struct{})
	go func() {
		d.Produce(ended, 0, []*sink.Batch{begun})
		close(produced)
	}()
	one := make([]byte, 1)
	if _, err := io.ReadFull(reader, one); err != nil { // the write is under way
		t.Fatal(err)
	}
	end()
	<-produced
	d.Produce(ended, 0, []*sink.Batch{other})
	if got := verdicts(begun, other); got[0] != sink.Unknown || got[1] != sink.NotWritten {
		t.Errorf("got verdicts %v, want unknown (%d) for what was begun and not written (%d) for the other", got,
			sink.Unknown, sink.NotWritten)
	}
	rest := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(reader)
		rest <- string(one) + string(all)
	}()
	d.Produce(t.Context(), 0, []*sink.Batch{begun, other})
	if got := verdicts(begun, other); got[0] != sink.Accepted || got[1] != sink.Accepted {
		t.Errorf("got verdicts %v when the reader goes on, want both accepted", got)
	}
	writer.Close()
	if got := <-rest; strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, `{"topic":"a"`) ||
		!strings.Contains(got, "\n"+`{"topic":"b"`) {
		t.Errorf("got\n%s\nwant one line of each topic", got)
	}
}
