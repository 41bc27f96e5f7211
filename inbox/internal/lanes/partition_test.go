package lanes

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A partition that fills its share of the memory is held, alone, until half of the share is free. Seen to fail with the
// bound of bytes left out, with all of the bounds for each partition, and with one that is never let go on.
func TestAFullPartitionIsHeldUntilHalfIsFree(t *testing.T) {
	for name, o := range map[string]Options{
		"events": {Workers: 1, MaxBatch: 1, MaxEvents: 40, MaxBytes: 1 << 20},
		"bytes":  {Workers: 1, MaxBatch: 1, MaxEvents: 1000, MaxBytes: 40}, // an event has a key of one byte
	} {
		t.Run(name, func(t *testing.T) {
			e := New(o)
			defer e.Close()
			e.Assign(place, 0, nil)
			e.Assign(Place{Topic: "t", Partition: 1}, 0, nil)
			var held []Place
			look := func() int {
				return e.Pressure(
					func(full []Place) { held = append(held, full...) },
					func(free []Place) {
						held = slices.DeleteFunc(held, func(p Place) bool { return slices.Contains(free, p) })
					})
			}
			wants := func(when string, want ...Place) {
				t.Helper()
				if n := look(); n != len(want) || !slices.Equal(held, want) {
					t.Errorf("%s: held are %v, and %d are said to be, want %v", when, held, n, want)
				}
			}
			feed(e, 0, 19, 5)
			wants("one below its share")
			feed(e, 19, 20, 5)
			wants("a full share", place)
			for range 9 {
				job, _ := e.Take()
				e.Finish(job, decided(job), 1, 0)
			}
			wants("one above the half", place)
			job, _ := e.Take()
			e.Finish(job, decided(job), 1, 0)
			wants("the half")
		})
	}
}

// A partition that is assigned while an earlier assignment's pause is under way comes after it, and so does the call
// that has it fetched: otherwise it would be held permanently, since the engine knows of no pause. Seen to fail with
// the functions called after the lock is given back.
func TestAPauseIsNotOfALaterAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.MaxEvents = 10
		e := New(o)
		defer e.Close()
		e.Assign(place, 0, nil)
		feed(e, 0, 10, 5)
		paused, done := false, make(chan struct{})
		e.Pressure(func([]Place) {
			go func() {
				defer close(done)
				e.Assign(place, 0, nil)
				if !paused {
					t.Error("the new assignment began before the old one's pause")
				}
			}()
			for range 1000 {
				runtime.Gosched()
			}
			paused = true
		}, nil)
		<-done
	})
}

// A partition's end counts as known only while it is asked for: without the brokers a lag of 0 would be a guess. Seen
// to fail with an end that stays known.
func TestAnEndThatIsNotSeenAgainIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Workers: 1, MaxBatch: 1, MaxEvents: 1, MaxBytes: 1})
		defer e.Close()
		e.Assign(place, 0, nil)
		known := func() bool { return e.Progress()[0].Ended }
		if known() {
			t.Error("before it was seen it is known")
		}
		e.End(place, 7)
		if !known() {
			t.Error("it was seen, and is not known")
		}
		time.Sleep(endKept)
		if known() {
			t.Error("it was not seen for long, and is known")
		}
	})
}
