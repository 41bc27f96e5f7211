package recordset

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Catches: a buffer that is too small for its batch; one that two batches have at a time; buffers, of which more and
// more are kept; and a list that makes new ones although it has some that are large enough. Seen to fail with the next
// smaller buffer given out, with a buffer left in the list, and with none thrown away.
func TestBuffersFitAndAreBounded(t *testing.T) {
	var l bufferList
	random := rand.New(rand.NewPCG(1, 2))
	used := map[*byte]bool{}
	for range 2000 {
		var batches [][]byte
		for range 12 {
			n := 1 + random.IntN(600<<10)
			b := l.get(n)
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
			l.keep(b)
		}
	}
	sum := 0
	for _, b := range l.free {
		sum += cap(b)
	}
	if sum != l.bytes || sum > mostKept {
		t.Errorf("kept: got %d bytes, said to be %d, want at most %d", sum, l.bytes, mostKept)
	}
	l.keep(make([]byte, 0, largestKept+1))
	l.keep(nil)
	if largest := l.get(1 << 20); cap(largest) > largestKept {
		t.Error("a giant was kept")
	}
}

// Catches: a list that does not use again what it was given, also after garbage was collected. Seen to fail with new
// buffers always made.
func TestBuffersAreUsedAgain(t *testing.T) {
	var l bufferList
	batch := func() {
		a, b := l.get(300<<10), l.get(100<<10)
		l.keep(a)
		l.keep(b)
	}
	batch()
	runtime.GC()
	runtime.GC()
	if n := testing.AllocsPerRun(100, batch); n >= 1 {
		t.Errorf("allocations for two batches: got %v, want none", n)
	}
}

// Catches: a process that keeps the buffers of its last burst forever. Seen to fail with a list that is never emptied.
func TestBuffersAreForgottenWhenNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l bufferList
		kept := func() int {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.bytes
		}
		l.keep(l.get(1 << 20))
		time.Sleep(keptFor / 2)
		l.keep(l.get(1 << 20))
		time.Sleep(keptFor - 1)
		if kept() == 0 {
			t.Error("forgotten while it is used")
		}
		time.Sleep(time.Nanosecond)
		if n := kept(); n != 0 {
			t.Errorf("kept for %v: got %d bytes, want none", keptFor, n)
		}
	})
}
