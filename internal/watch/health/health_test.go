package health

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Break it catches: a trouble that is logged at every attempt, or only once though it goes on for hours; a new error
// hidden by the one before it.
func TestRepeatedTroubleIsNewsOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h State
		first, second := errors.New("first"), errors.New("second")
		said := 0
		for range 200 { // 100 s of attempts
			if h.CannotRecord("journal", first) {
				said++
			}
			time.Sleep(500 * time.Millisecond)
		}
		if said < 3 || said > 4 {
			t.Errorf("the same trouble for 100 s: said %d times, want once and every 30 s", said)
		}
		if !h.CannotRecord("journal", second) || h.CannotRecord("journal", second) {
			t.Error("another trouble: want it said once")
		}
		if !h.CannotRecord("dead_letter", second) {
			t.Error("the same trouble of another write: want it said")
		}
		// The port of each attempt is another, the trouble is not.
		for port := range 61 { // at 500 ms: the 61st is said again
			news, unsaid := h.Trouble("connection", fmt.Errorf("read tcp 127.0.0.1:%d: refused", 40000+port), 1, time.Second)
			if want := port == 0; news != want && port < 60 {
				t.Errorf("attempt %d: news %v, want %v", port, news, want)
			}
			if unsaid != 0 {
				t.Errorf("attempt %d: %d not said, want none to be told yet", port, unsaid)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if news, unsaid := h.Trouble("connection", errors.New("read tcp 127.0.0.1:7: refused"), 1, time.Second); !news ||
			unsaid != 60 {
			t.Errorf("after half a minute: news %v, %d not said, want it said with the 60 that were not", news, unsaid)
		}
		h.Recorded("journal")
		if !h.CannotRecord("journal", second) {
			t.Error("a trouble that comes back: want it said")
		}
	})
}

// Breaks it catches: a halt that stays in the status after it ended, a probe's connection trouble shown as the halt, a
// role whose beginning moves though it did not change.
func TestRolesAndHaltsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h State
		seen := h.Report
		if !h.Enter(Active) || h.Enter(Active) {
			t.Error("enter: want a change the first time only")
		}
		since := seen().Since
		time.Sleep(time.Second)
		halt := &halt.Error{Code: halt.Column, Reason: "why", Risk: "what", Remedy: "how"}
		if !h.Halt(halt) {
			t.Error("a halt: want it said")
		}
		st := seen()
		if st.Role != Halted || st.Halt != halt || !slices.Contains(st.Reasons, "halted (column): why") {
			t.Errorf("halted: got %s, %+v, reasons %q", st.Role, st.Halt, st.Reasons)
		}
		if got := st.Since.Sub(since); got != time.Second {
			t.Errorf("role_since: got %v after the role before, want 1s", got)
		}
		time.Sleep(time.Second)
		if h.Halt(halt) || !seen().Since.Equal(st.Since) {
			t.Error("the same halt again: want neither news nor a new beginning")
		}
		h.Trouble("connection", errors.New("connection refused"), 3, 5*time.Second)
		if st := seen(); st.Halt != nil || st.Role != Starting || len(st.Reasons) != 1 ||
			!strings.Contains(st.Reasons[0], "connection refused") {
			t.Errorf("a session that failed after a halt: got %s, halt %+v, reasons %q", st.Role, st.Halt, st.Reasons)
		}
		h.Halt(halt)
		h.Enter(Active)
		if st := seen(); st.Halt != nil || len(st.Reasons) != 0 || st.LastError == "" || st.LastErrorAt.IsZero() {
			t.Errorf("active after a halt: got halt %+v, reasons %q, last error %q at %v; want only the last error", st.Halt,
				st.Reasons, st.LastError, st.LastErrorAt)
		}
		h.CannotRecord("journal", errors.New("b"))
		h.CannotRecord("dead_letter", errors.New("a"))
		if st := seen(); len(st.Reasons) != 2 || !strings.HasPrefix(st.Reasons[0],
			"cannot record outcomes (dead_letter): a") {
			t.Errorf("writes in trouble: got %q, want both, in a stable order", st.Reasons)
		}
		for _, role := range []Role{Starting, Stopping} {
			h = State{}
			h.Enter(role)
			if st := seen(); len(st.Reasons) != 1 || st.Reasons[0] != string(role) {
				t.Errorf("%s: got reasons %q, want its name", role, st.Reasons)
			}
		}
	})
}

// The newest error of any kind is shown, with its time, and says when what it was about is well again. Breaks it
// catches: an event that died, a write or a sink in trouble that the status keeps to itself; an outage that is over
// and told as if it went on, or the reverse. Seen to fail with each kind not noted, and with each called over at once
// or never.
func TestNewestErrorIsShownAndSaysWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		h := State{}
		want := func(text string, over bool) {
			t.Helper()
			if st := h.Report(); !strings.Contains(st.LastError, text) || st.LastErrorOver != over ||
				!st.LastErrorAt.Equal(begun) {
				t.Errorf("got %q at %v, over: %v; want %q, over: %v", st.LastError, st.LastErrorAt, st.LastErrorOver, text, over)
			}
		}
		h.Trouble("connection", errors.New("connection refused"), 3, 5*time.Second)
		want("connection refused", false)
		h.Halt(&halt.Error{Code: halt.Column, Reason: "gone"})
		want("gone", false)
		h.Enter(Active)
		want("gone", true)
		h.CannotRecord("journal", errors.New("disk full"))
		want("cannot record outcomes (journal): disk full", false)
		h.Recorded("dead_letter")
		want("disk full", false)
		h.Recorded("journal")
		want("disk full", true)
		h.CannotMark(errors.New("locked"))
		want("cannot mark rows as published: locked", false)
		h.Marked()
		want("locked", true)
		h.SinkTrouble("topic t: its events are parked")
		want("topic t", false)
		h.SinkTrouble("")
		want("topic t", true)
		h.Died("t", &sink.Reason{Code: "TOO_LARGE", Text: "2 MB"})
		h.SinkTrouble("")
		want("an event for topic t became a dead letter (TOO_LARGE): 2 MB", false)
	})
}
