package verify

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	sorterMemory = 16 << 20 // bytes of entries that are sorted at once; each portion makes a file
	runBuffer    = 64 << 10
)

// sorter sorts entries that do not fit into memory: portions of them are sorted and written to files, which are merged
// in the end. Entries are compared as bytes.
type sorter struct {
	dir     string
	memory  int
	data    []byte
	entries []span
	runs    []*os.File
}

type span struct{ from, to int }

func newSorter(dir string) *sorter { return &sorter{dir: dir, memory: sorterMemory} }

// add takes a copy of the entry.
func (s *sorter) add(entry []byte) error {
	s.entries = append(s.entries, span{len(s.data), len(s.data) + len(entry)})
	s.data = append(s.data, entry...)
	if len(s.data) < s.memory {
		return nil
	}
	return s.spill()
}

func (s *sorter) sort() {
	slices.SortFunc(s.entries, func(a, b span) int { return bytes.Compare(s.data[a.from:a.to], s.data[b.from:b.to]) })
}

// spill writes what is in memory to a file of its own.
func (s *sorter) spill() error {
	s.sort()
	f, err := os.CreateTemp(s.dir, "run-")
	if err != nil {
		return fmt.Errorf("make a temporary file: %w", err)
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, runBuffer)
	for _, e := range s.entries {
		_, _ = w.Write(binary.AppendUvarint(w.AvailableBuffer(), uint64(e.to-e.from)))
		_, _ = w.Write(s.data[e.from:e.to])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	s.data, s.entries = s.data[:0], s.entries[:0]
	return nil
}

// each hands out all entries in order; one is valid only during the call.
func (s *sorter) each(do func(entry []byte) error) error {
	s.sort()
	if len(s.runs) == 0 {
		for _, e := range s.entries {
			if err := do(s.data[e.from:e.to]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.data, s.entries = nil, nil
	var m merge
	for _, f := range s.runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read a temporary file: %w", err)
		}
		r := &run{reader: bufio.NewReaderSize(f, runBuffer)}
		more, err := r.next()
		if err != nil {
			return err
		}
		if more {
			m = append(m, r)
		}
	}
	heap.Init(&m)
	for len(m) > 0 {
		if err := do(m[0].entry); err != nil {
			return err
		}
		more, err := m[0].next()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&m, 0)
		default:
			heap.Pop(&m)
		}
	}
	return nil
}

// close closes the files; they go with their directory.
func (s *sorter) close() error {
	var errs []error
	for _, f := range s.runs {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// run is a sorted file that is being merged.
type run struct {
	reader *bufio.Reader
	entry  []byte
}

func (r *run) next() (more bool, err error) {
	n, err := binary.ReadUvarint(r.reader)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err == nil {
		r.entry = slices.Grow(r.entry[:0], int(n))[:n]
		_, err = io.ReadFull(r.reader, r.entry)
	}
	if err != nil {
		return false, fmt.Errorf("read a temporary file: %w", err)
	}
	return true, nil
}

type merge []*run

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return bytes.Compare(m[i].entry, m[j].entry) < 0 }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)        { *m = append(*m, x.(*run)) }
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
