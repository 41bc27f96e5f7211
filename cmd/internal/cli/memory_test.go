package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// Breaks it catches: a small heap that is collected again and again, and a large one that may grow by more than a
// fifth.
func TestHeapMayGrowToTheFloorOrByAFifth(t *testing.T) {
	const roots = 1 << 20
	for alive := uint64(1 << 20); alive < 64<<20; alive += 1 << 19 {
		percent := percentFor(alive, roots)
		goal := alive + (alive+roots)*uint64(percent)/100
		fifth := alive + (alive+roots)*gcPercent/100
		switch {
		case percent < gcPercent || percent > gcMost:
			t.Errorf("%d bytes alive: got %d %%, want %d to %d", alive, percent, gcPercent, gcMost)
		case goal > max(gcFloor, fifth):
			t.Errorf("%d bytes alive: the heap may grow to %d, want at most %d", alive, goal, max(gcFloor, fifth))
		case percent < gcMost && goal < gcFloor*9/10:
			t.Errorf("%d bytes alive: it is collected at %d, want not below %d", alive, goal, gcFloor*9/10)
		}
	}
	if got := percentFor(0, 0); got != gcMost {
		t.Errorf("before the first collection: got %d %%, want %d", got, gcMost)
	}
}

// Break it catches: a collector that stays lazy while the window fills, or eager when it is empty again.
func TestCollectorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "1GiB") // stays as it is
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	TuneMemoryTo(0)
	window := make([]byte, 64<<20)
	awaitPercent(t, "with 64 MiB alive", func(percent uint64) bool { return percent == gcPercent })
	runtime.KeepAlive(window)
	awaitPercent(t, "with little alive", func(percent uint64) bool { return percent > 2*gcPercent })
}

func awaitPercent(t *testing.T, when string, want func(uint64) bool) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		if metrics.Read(sample); want(sample[0].Value.Uint64()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: GOGC is still %d", when, sample[0].Value.Uint64())
		}
	}
}
