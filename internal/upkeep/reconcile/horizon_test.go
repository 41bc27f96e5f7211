package reconcile

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Breaks it catches: a horizon that passes a transaction that runs, one that was prepared when the look began, or one
// that is prepared while it is waited for and so has another name; a horizon that waits for what began later, forever.
// Seen failing with a horizon that waits for nothing.
func TestHorizonPassesNoRunningOrPreparedTransaction(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	at := func(second int, sessions, prepared []string) store.Running {
		return store.Running{Now: begin.Add(time.Duration(second) * time.Second), Sessions: sessions, Prepared: prepared}
	}
	for _, step := range []struct {
		what  string
		looks []store.Running
		want  int // the look at which it passes; -1: none
	}{
		{"nothing runs", []store.Running{at(0, nil, nil)}, 0},
		{"one that runs ends", []store.Running{at(0, []string{"3/1"}, nil), at(1, []string{"3/1"}, nil), at(2, nil, nil)}, 2},
		{"others come and go", []store.Running{at(0, []string{"3/1"}, nil), at(1, []string{"3/2", "4/9"}, []string{})}, 1},
		{"it is prepared meanwhile", []store.Running{at(0, []string{"3/1"}, nil), at(1, nil, []string{"700"}),
			at(2, nil, []string{"700"}), at(3, nil, nil)}, 3},
		{"one was prepared before", []store.Running{at(0, nil, []string{"700"}), at(1, nil, []string{"700", "701"}),
			at(2, nil, []string{"701"})}, 2},
		{"it never ends", []store.Running{at(0, []string{"3/1"}, nil), at(1, []string{"3/1", "4/1"}, nil),
			at(2, []string{"3/1"}, nil)}, -1},
	} {
		var h horizon
		got := -1
		for i, look := range step.looks {
			if h.advance(look) {
				got = i
				break
			}
		}
		if got != step.want {
			t.Errorf("%s: passed at look %d, want %d", step.what, got, step.want)
		}
		if !h.next.Equal(begin) {
			t.Errorf("%s: horizon at %v, want the time of the first look", step.what, h.next)
		}
	}
}
