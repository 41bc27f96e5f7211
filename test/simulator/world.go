package simulator

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// traceLength is how many of the last steps are kept for the report of a failure.
const traceLength = 400

// world is everything outside the relay's processes: it survives them. One mutex guards all of it, and is never held
// while anything waits.
type world struct {
	seed    uint64
	profile profile
	mutant  string    // what the fakes do wrong on purpose; see mutants.go
	aloud   io.Writer // gets the steps as they happen; nil: no one
	began   time.Time
	failed  chan struct{} // closed at the first violation
	real    reality       // nil: all is made up
	// no one judges what is written to the tables: no relay does it
	unjudged bool

	mu        sync.Mutex
	server    *server
	cluster   *cluster
	processes []*process
	serials   int        // take-overs so far
	takers    []*process // of these
	turns     []*turn    // that began, or went on, with these
	heir      int        // the one with which the present term began, where what was sent before cannot be read back
	takenAt   time.Time  // of the last one
	calm      bool       // all trouble has ended
	calmAt    time.Time  // since when
	broken    *breakage  // what ends each stream, until a person repairs it; nil: nothing
	mendedAt  time.Time  // when a person has
	decided   time.Time  // when a person looked last
	decisions int
	repaired  bool
	spooling  int // calls that were to spool a row
	moves     int // of outboxes, and what comes of them
	comparing int // people who will ask for what topics have lost
	failure   string
	trace     []step
	steps     int
	counts    Counts
}

// step is one line of the trace, put into words only if it is needed.
type step struct {
	at     time.Duration
	format string
	args   []any
}

func (s step) String() string {
	return fmt.Sprintf("%9.4fs  %s", s.at.Seconds(), fmt.Sprintf(s.format, s.args...))
}

// Counts are the events of runs; they show that the intended faults took place.
type Counts struct {
	Runs, Rows, Records, Calls                                   int
	Processes, Kills, Freezes, Stops, TakeOvers                  int
	Redelivered, Duplicates, LateAppends, Parked, Retried, Dead  int
	StreamCuts, ServerCrashes, SlotsLost, LostAnswers, TailReads int
	CatchUpRows, FailedCalls, Fenced, UnknownRequests, Refusals  int
	FakeSeconds                                                  int
	Requests, Replayed, DiedAgain, StayedBehind                  int
	Copies, BreakerOpened                                        int
	Reconciled, Deleted                                          int
	Lost, Republished, Spooled                                   int
	StreamsDied, DiedUnread, Reasons, LeftAlone                  int
	ReadBehind, Moved                                            int            // of conditional streams
	Cuts, Repeatable                                             int            // of what can only be confirmed
	Faults                                                       map[string]int // by their names in Faults
}

func (w *world) dice(about ...uint64) *dice { return newDice(w.seed, about...) }

// note adds a step to the trace. Called with mu held.
func (w *world) note(format string, args ...any) {
	s := step{time.Since(w.began), format, args}
	if w.aloud != nil {
		fmt.Fprintln(w.aloud, s)
	}
	if len(w.trace) < traceLength {
		w.trace = append(w.trace, s)
	} else {
		w.trace[w.steps%traceLength] = s
	}
	w.steps++
}

// violate reports a broken invariant; the first one counts. Called with mu held.
func (w *world) violate(format string, args ...any) {
	w.note("VIOLATED: "+format, args...)
	if w.failure != "" {
		return
	}
	w.failure = fmt.Sprintf(format, args...)
	close(w.failed)
}

// story is the trace in words.
func (w *world) story() string {
	var b strings.Builder
	first := max(0, w.steps-traceLength)
	for i := first; i < w.steps; i++ {
		fmt.Fprintln(&b, w.trace[i%traceLength])
	}
	return b.String()
}

// after runs f, with mu held, when so much fake time has passed.
func (w *world) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

// duringTrouble runs f like after, unless all trouble has ended by then.
func (w *world) duringTrouble(d time.Duration, f func()) {
	w.after(d, func() {
		if !w.calm && w.failure == "" {
			f()
		}
	})
}
