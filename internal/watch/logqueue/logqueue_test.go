package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Breaks it catches: a logger that waits for a reader that has stopped; lines without a bound; drops that are not
// counted, or not reported once the reader goes on; lines out of order. Seen to fail with Write handed on (it never
// returned), without the bound, with drops not counted, and with the report left out.
func TestReaderThatStopsBlocksNobodyAndDropsAreReported(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	w := New(writer).Reports(func(c zerolog.Context) zerolog.Context { return c.Str("service", "shop") })
	const callers, each = 4, 5000
	padding := strings.Repeat("x", 200)
	var group sync.WaitGroup
	for caller := range callers {
		log := zerolog.New(w).With().Int("caller", caller).Logger()
		group.Go(func() {
			for n := range each {
				log.Info().Int("n", n).Msg(padding)
			}
		})
	}
	group.Wait()
	dropped := w.Dropped()
	if dropped == 0 || dropped >= callers*each {
		t.Errorf("dropped: got %d of %d lines, want those beyond %d bytes", dropped, callers*each, Most)
	}
	if w.Flush(time.Millisecond) {
		t.Error("flushed, though the reader has stopped")
	}
	text := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(reader)
		text <- all
	}()
	if !w.Flush(time.Minute) {
		t.Fatal("not flushed, though the reader goes on")
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(<-text), "\n"), "\n")
	written, reported, next := uint64(0), uint64(0), [callers]int{}
	for _, l := range lines {
		var caller, n int
		var lost uint64
		if _, err := fmt.Sscanf(l, `{"level":"warn","service":"shop","dropped":%d,`, &lost); err == nil {
			reported += lost
		} else if _, err := fmt.Sscanf(l, `{"level":"info","caller":%d,"n":%d,`, &caller, &n); err != nil {
			t.Fatalf("line %.80q: %v", l, err)
		} else if n < next[caller] {
			t.Fatalf("caller %d: got line %d after %d", caller, n, next[caller]-1)
		} else {
			next[caller] = n + 1
			written++
		}
	}
	if written != callers*each-dropped || reported != dropped {
		t.Errorf("got %d lines and reports of %d dropped, want %d and %d", written, reported, callers*each-dropped, dropped)
	}
}

// failing takes nothing until it is well.
type failing struct {
	bytes.Buffer
	well bool
}

func (f *failing) Write(p []byte) (int, error) {
	if !f.well {
		return 0, errors.New("no space left on device")
	}
	return f.Buffer.Write(p)
}

// Breaks it catches: lines that could not be written and are not counted; a report that is lost with them. Seen to fail
// with errors not counted, and with a report that failed taken for given.
func TestLinesThatCannotBeWrittenAreCountedAndReportedLater(t *testing.T) {
	t.Parallel()
	var to failing
	w := New(&to)
	for n := range 3 {
		_, _ = fmt.Fprintf(w, "line %d\n", n)
		w.Flush(time.Minute)
	}
	to.well = true
	_, _ = fmt.Fprintln(w, "line 3")
	w.Flush(time.Minute)
	got := to.String()
	if w.Dropped() != 3 || !strings.Contains(got, `"dropped":3`) || !strings.HasSuffix(got, "line 3\n") ||
		strings.Count(got, "\n") != 2 {
		t.Errorf("got %d dropped and %q, want 3, reported, and then line 3", w.Dropped(), got)
	}
}
