package recordset

import (
	"slices"
	"sync"
	"time"
)

const (
	// bufferStep rounds the sizes of buffers, so that batches of nearly the same size can use the same.
	bufferStep = 4 << 10
	// largestKept is the largest buffer that is kept, in bytes: a rare giant should not stay in memory.
	largestKept = 4 << 20
	// mostKept is how many bytes of buffers are kept: about what all batches need that wait for an answer, with the usual
	// window. All of them come back at once, and are needed again at once.
	mostKept = 5 << 20
	// keptFor is how long buffers are kept when nothing is sent.
	keptFor = 10 * time.Second
)

// bufferList are buffers for encoded batches that no one uses, the smallest first. Batches vary in size, so a pool of
// single buffers, such as sync.Pool is, would give out too small ones, or keep many more than are needed at a time; and
// the garbage collector empties it while it is in use.
type bufferList struct {
	mu     sync.Mutex
	free   [][]byte
	bytes  int // of free
	forget *time.Timer
}

// buffers are those of all drivers of the process.
var buffers bufferList

func byCapacity(b []byte, size int) int { return cap(b) - size }

// get is an empty buffer with room for n bytes: the smallest that there is, or a new one.
func (l *bufferList) get(n int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.free, n, byCapacity)
	if i == len(l.free) {
		return make([]byte, 0, (n+bufferStep-1)/bufferStep*bufferStep)
	}
	b := l.free[i]
	l.free = slices.Delete(l.free, i, i+1)
	l.bytes -= cap(b)
	return b
}

// keep gives a buffer back that no one reads or writes any more. When there are too many the smallest go: a larger one
// serves as well.
func (l *bufferList) keep(b []byte) {
	if cap(b) == 0 || cap(b) > largestKept {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.free, cap(b), byCapacity)
	l.free = slices.Insert(l.free, i, b[:0])
	l.bytes += cap(b)
	for l.bytes > mostKept {
		l.bytes -= cap(l.free[0])
		l.free = slices.Delete(l.free, 0, 1)
	}
	if l.forget == nil {
		l.forget = time.AfterFunc(keptFor, l.empty)
	}
	l.forget.Reset(keptFor)
}

// empty leaves all buffers to the garbage collector.
func (l *bufferList) empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free, l.bytes = nil, 0
}
