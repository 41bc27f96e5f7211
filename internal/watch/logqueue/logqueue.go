// Package logqueue writes log lines without ever making their caller wait:
//
//	lines := logqueue.New(os.Stderr)
//	log := zerolog.New(lines)
//	defer lines.Flush(time.Second)
//
// The reader of a log can stop reading, or go away: a container engine with a blocking log driver, a hung collector, a
// head that has seen enough. A program that logs while it works stops with them. Here lines wait in memory, in order,
// up to a bound; lines beyond it are dropped, counted, and reported in the log as soon as it takes lines again.
//
// It does not format lines, and a program that must survive a reader that is gone has to handle SIGPIPE itself.
package logqueue

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Most bounds the waiting lines, in bytes: some thousands of lines, minutes of a relay in trouble.
const Most = 1 << 20

// Writer hands what it is given to another writer, on a goroutine of its own that lives while there is something to
// write. Make it with New. Any goroutine may use it.
//
// Invariants:
//
//  1. Write never waits for the writer beneath, and returns no error.
//  2. Each line is either handed to the writer beneath, once, in the order of the calls of Write, or counted by
//     Dropped.
//  3. At most one goroutine uses the writer beneath.
type Writer struct {
	to      zerolog.LevelWriter
	reports zerolog.Logger // its context only: what lines about dropped ones contain

	mu       sync.Mutex // guards all that follows
	lines    []line
	bytes    int           // of lines, and of the one that is being written
	idle     chan struct{} // closed when there is nothing left to write; nil while nothing is being written
	dropped  uint64
	reported uint64 // of those
	tried    bool   // to report the rest, since the last line
}

type line struct {
	level zerolog.Level
	text  []byte
}

// New makes a Writer to w.
func New(w io.Writer) *Writer {
	to, is := w.(zerolog.LevelWriter)
	if !is {
		to = zerolog.LevelWriterAdapter{Writer: w}
	}
	return &Writer{to: to, reports: zerolog.New(nil).With().Timestamp().Logger()}
}

// Reports adds to the lines that report dropped ones, before the first Write: as the program's logger has them.
func (w *Writer) Reports(with func(zerolog.Context) zerolog.Context) *Writer {
	w.reports = with(w.reports.With()).Logger()
	return w
}

// Write takes one line, or drops it.
func (w *Writer) Write(p []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel takes one line of a level, or drops it.
func (w *Writer) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes+len(p) > Most {
		w.dropped++
		return len(p), nil
	}
	w.lines, w.bytes = append(w.lines, line{level, bytes.Clone(p)}), w.bytes+len(p)
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.drain()
	}
	return len(p), nil
}

// Dropped counts the lines that were not written: the bound was reached, or the writer beneath failed.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Flush waits until everything is written, at most for the patience, and reports whether it is.
func (w *Writer) Flush(patience time.Duration) bool {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}

// drain writes until there is nothing left.
func (w *Writer) drain() {
	for {
		next, lost, state := w.next()
		if lost > 0 {
			w.report(lost)
		}
		switch state {
		case ended:
			return
		case empty:
			continue // a report that failed is tried again with the next line
		}
		_, err := w.to.WriteLevel(next.level, next.text)
		w.mu.Lock()
		if w.bytes -= len(next.text); err != nil {
			w.dropped++
		}
		w.mu.Unlock()
	}
}

type state uint8

const (
	more  state = iota // there is a line
	empty              // there is none, but dropped ones that were not reported yet
	ended              // there is nothing
)

// next is the next line, and how many were dropped that no report counts yet.
func (w *Writer) next() (next line, lost uint64, s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost = w.dropped - w.reported; len(w.lines) > 0 {
		next, w.lines[0] = w.lines[0], line{}
		w.lines, w.tried = w.lines[1:], false
		return next, lost, more
	}
	if lost > 0 && !w.tried {
		w.tried = true
		return next, lost, empty
	}
	w.lines = nil
	close(w.idle)
	w.idle = nil
	return next, 0, ended
}

// report says how many lines were dropped.
func (w *Writer) report(lost uint64) {
	var text bytes.Buffer
	report := w.reports.Output(&text)
	report.Warn().Uint64("dropped", lost).Msg("log lines were dropped: the log was not read, or could not be written")
	if _, err := w.to.WriteLevel(zerolog.WarnLevel, text.Bytes()); err == nil {
		w.mu.Lock()
		w.reported += lost
		w.mu.Unlock()
	}
}
