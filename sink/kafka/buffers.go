package kafka

import (
	"slices"
	"sync"
)

const (
	// bufferStep is what the sizes of buffers are multiples of, so that batches of nearly the same size can use the same.
	bufferStep = 4 << 10
	// largestKept is the largest buffer that is kept, in bytes: a rare giant should not stay in memory.
	largestKept = 4 << 20
	// mostKept is how many bytes of buffers one list keeps: about what all batches need that wait for an answer, with the usual
	// window. All of them come back at once, and are needed again at once.
	mostKept = 7 << 20
)

// bufferList are buffers for encoded batches that nobody uses, the smallest first.
type bufferList struct {
	free  [][]byte
	bytes int // of free
}

// bufferLists are one or a few, and the garbage collector takes them when nothing is sent for a while. Batches vary in size,
// so a pool of single buffers would give out too small ones, or keep many more than are needed at a time.
var bufferLists = sync.Pool{New: func() any { return new(bufferList) }}

func byCapacity(b []byte, size int) int { return cap(b) - size }

// newBuffer is an empty buffer with room for n bytes: the smallest that there is, or a new one.
func newBuffer(n int) []byte {
	l := bufferLists.Get().(*bufferList)
	defer bufferLists.Put(l)
	i, _ := slices.BinarySearchFunc(l.free, n, byCapacity)
	if i == len(l.free) {
		return make([]byte, 0, (n+bufferStep-1)/bufferStep*bufferStep)
	}
	b := l.free[i]
	l.free = slices.Delete(l.free, i, i+1)
	l.bytes -= cap(b)
	return b
}

// keepBuffer gives a buffer back that nobody reads or writes any more. When there are too many the smallest go: a larger one
// serves as well.
func keepBuffer(b []byte) {
	if cap(b) == 0 || cap(b) > largestKept {
		return
	}
	l := bufferLists.Get().(*bufferList)
	defer bufferLists.Put(l)
	i, _ := slices.BinarySearchFunc(l.free, cap(b), byCapacity)
	l.free = slices.Insert(l.free, i, b[:0])
	l.bytes += cap(b)
	for l.bytes > mostKept {
		l.bytes -= cap(l.free[0])
		l.free = slices.Delete(l.free, 0, 1)
	}
}
