package kafka

import (
	"math/rand/v2"
	"testing"
)

// Catches: a buffer that is too small for its batch; one that two batches have at a time; buffers of which ever more are kept;
// and a list that makes new ones although it has some that are large enough. Seen to fail with the next smaller buffer given
// out, with a buffer left in the list, and with none thrown away.
func TestBuffersFitAndAreBounded(t *testing.T) {
	l := &bufferList{}
	bufferLists.Put(l)
	random := rand.New(rand.NewPCG(1, 2))
	used := map[*byte]bool{}
	for range 2000 {
		var batches [][]byte
		for range 12 {
			n := 1 + random.IntN(600<<10)
			b := newBuffer(n)
			if cap(b) < n || len(b) != 0 {
				t.Fatalf("buffer for %d bytes: got one of %d with %d in it", n, cap(b), len(b))
			}
			if p := &b[:1][0]; used[p] {
				t.Fatal("two batches have one buffer")
			} else {
				used[p] = true
			}
			batches = append(batches, b)
		}
		for _, b := range batches {
			delete(used, &b[:1][0])
			keepBuffer(b)
		}
	}
	sum := 0
	for _, b := range l.free {
		sum += cap(b)
	}
	if sum != l.bytes || sum > mostKept {
		t.Errorf("kept: got %d bytes, said to be %d, want at most %d", sum, l.bytes, mostKept)
	}
	keepBuffer(make([]byte, 0, largestKept+1))
	keepBuffer(nil)
	if largest := newBuffer(1 << 20); cap(largest) > largestKept {
		t.Error("a giant was kept")
	}
}

// Catches: a list that does not use again what it was given. Seen to fail with new buffers always made.
func TestBuffersAreUsedAgain(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector lets pools forget at random")
	}
	batch := func() {
		a, b := newBuffer(300<<10), newBuffer(100<<10)
		keepBuffer(a)
		keepBuffer(b)
	}
	batch()
	if n := testing.AllocsPerRun(100, batch); n >= 1 {
		t.Errorf("allocations for two batches: got %v, want none", n)
	}
}
