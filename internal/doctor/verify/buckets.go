package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// bucketCount divides what is compared by the ids' digests: of 100 million rows a bucket has 400,000.
const bucketCount = 256

const bucketBuffer = 16 << 10

// buckets are files of entries, one for each value of an id digest's first byte.
type buckets struct {
	dir, name string
	files     [bucketCount]struct {
		mu     sync.Mutex // guards the rest
		file   *os.File   // nil = nothing was added
		writer *bufio.Writer
	}
}

func newBuckets(dir, name string) *buckets { return &buckets{dir: dir, name: name} }

// add writes an entry to the bucket of the id. Any goroutine may call it.
func (b *buckets) add(id Digest, entry []byte) (err error) {
	f := &b.files[id[0]]
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		f.file, err = os.OpenFile(filepath.Join(b.dir, b.name+strconv.Itoa(int(id[0]))), os.O_CREATE|os.O_RDWR|os.O_EXCL,
			0o600)
		if err != nil {
			return fmt.Errorf("make a temporary file: %w", err)
		}
		f.writer = bufio.NewWriterSize(f.file, bucketBuffer)
	}
	if _, err := f.writer.Write(entry); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	return nil
}

// read gives a bucket from its beginning. Nothing may be added any more.
func (b *buckets) read(n int) (*bufio.Reader, error) {
	f := &b.files[n]
	if f.file == nil {
		return bufio.NewReader(strings.NewReader("")), nil
	}
	if err := f.writer.Flush(); err != nil {
		return nil, fmt.Errorf("write a temporary file: %w", err)
	}
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read a temporary file: %w", err)
	}
	return bufio.NewReaderSize(f.file, runBuffer), nil
}

// close closes the files; they go with their directory.
func (b *buckets) close() error {
	var errs []error
	for n := range b.files {
		if f := b.files[n].file; f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
