package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// pageSize is in what pieces writes are held, in bytes.
const pageSize = 4096

// memory holds written and unsynced data, by inode: a file that is renamed, or has two names, is one.
type memory struct {
	mu    sync.Mutex // guards what follows; taken before a file's
	files map[uint64]*file
}

// file is one whose newest content may be held here. It keeps a descriptor, so that its inode is not used for another.
type file struct {
	mu    sync.Mutex // guards what follows
	fd    int        // of the durable file, for both directions
	pages map[int64][]byte
	end   int64 // of what is held; the file is at least that long
}

// of is the file with that inode, which open opens if it is not known yet.
func (m *memory) of(inode uint64, open func() (int, error)) (*file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[inode]; f != nil {
		return f, nil
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	f := &file{fd: fd, pages: map[int64][]byte{}}
	m.files[inode] = f
	return f, nil
}

// known is the file with that inode if something was ever opened, else nil.
func (m *memory) known(inode uint64) *file {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[inode]
}

// gone frees a file that has no name any more. Who has it open may go on: it is nowhere durable.
func (m *memory) gone(inode uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[inode]; f != nil {
		f.mu.Lock()
		f.pages, f.end = map[int64][]byte{}, 0
		f.mu.Unlock()
	}
}

// dirty counts what a crash would forget.
func (m *memory) dirty() (pages, files int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		f.mu.Lock()
		if len(f.pages) > 0 {
			pages, files = pages+len(f.pages), files+1
		}
		f.mu.Unlock()
	}
	return pages, files
}

// sync makes everything durable.
func (m *memory) sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		if err := f.sync(); err != nil {
			return err
		}
	}
	return nil
}

// write holds the data.
func (f *file) write(data []byte, at int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = max(f.end, at+int64(len(data)))
	for len(data) > 0 {
		number, from := at/pageSize, int(at%pageSize)
		page := f.pages[number]
		if page == nil {
			page = make([]byte, pageSize)
			if _, err := readFull(f.fd, page, number*pageSize); err != nil {
				return err
			}
			f.pages[number] = page
		}
		n := copy(page[from:], data)
		data, at = data[n:], at+int64(n)
	}
	return nil
}

// read fills what there is of the file into the buffer and returns how much that was.
func (f *file) read(into []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	durable, err := readFull(f.fd, into, at)
	if err != nil {
		return 0, err
	}
	size := max(durable, min(len(into), int(max(f.end-at, 0))))
	into = into[:size]
	clear(into[durable:]) // a hole
	for number := at / pageSize; number*pageSize < at+int64(size); number++ {
		page := f.pages[number]
		if page == nil {
			continue
		}
		begin := number * pageSize
		if begin >= at {
			copy(into[begin-at:], page)
		} else {
			copy(into, page[at-begin:])
		}
	}
	return size, nil
}

// sync makes what is held durable.
func (f *file) sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(f.pages)) {
		begin := number * pageSize
		var at syscall.Stat_t
		if err := syscall.Fstat(f.fd, &at); err != nil {
			return fmt.Errorf("look at the durable file: %w", err)
		}
		last := min(pageSize, max(f.end, at.Size)-begin) // the page may reach behind the file's end
		if _, err := syscall.Pwrite(f.fd, f.pages[number][:max(last, 0)], begin); err != nil {
			return fmt.Errorf("write the durable file: %w", err)
		}
	}
	clear(f.pages)
	f.end = 0
	return nil
}

// cut takes in that the durable file was made that long.
func (f *file) cut(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = min(f.end, size)
	for number, page := range f.pages {
		switch begin := number * pageSize; {
		case begin >= size:
			delete(f.pages, number)
		case begin+pageSize > size:
			clear(page[size-begin:])
		}
	}
}

// size is how long the file is.
func (f *file) size(durable uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(durable, uint64(f.end))
}

// readFull reads until the buffer is full or the file ends.
func readFull(fd int, into []byte, at int64) (n int, err error) {
	for n < len(into) {
		read, err := syscall.Pread(fd, into[n:], at+int64(n))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("read the durable file: %w", err)
		}
		if read == 0 {
			return n, nil
		}
		n += read
	}
	return n, nil
}
