package sink

import (
	"testing"

	"pgregory.net/rapid"
)

// Breaks when a ring that wraps, grows or is given up loses a record or its order (seen to fail with a grow that copies
// from the ring's beginning), or keeps its memory.
func TestRecordQueueIsAFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q recordQueue
		var model []*Record
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 2*keptRing).Draw(t, "n") {
					r := &Record{}
					q.push(r)
					model = append(model, r)
				}
			},
			"pushFront": func(t *rapid.T) {
				r := &Record{}
				q.pushFront(r)
				model = append([]*Record{r}, model...)
			},
			"pop": func(t *rapid.T) {
				for range rapid.IntRange(0, len(model)).Draw(t, "n") {
					if got := q.pop(); got != model[0] {
						t.Fatalf("pop: got another record than the oldest of %d", len(model))
					}
					model = model[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.length != len(model) || (q.head() == nil) != (len(model) == 0) || len(model) > 0 && q.head() != model[0] {
					t.Fatalf("queue of %d: got another head, or length %d", len(model), q.length)
				}
				if q.length == 0 && len(q.ring) > keptRing {
					t.Fatalf("empty queue: got a ring of %d, want at most %d", len(q.ring), keptRing)
				}
			},
		})
	})
}
