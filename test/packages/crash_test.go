package packages

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func id(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }

// story is a list of messages with each fate: an effect, one after an attempt, behind it, a dead letter.
func story() (messages []object) {
	for n, m := range []struct{ key, fails string }{
		{"a", ""}, {"a", "error"}, {"a", ""}, {"b", "permanent"}, {"b", ""}, {"c", ""},
	} {
		value := object{"n": n + 1}
		if m.fails != "" {
			value["fails"], value["until"] = m.fails, 1
		}
		message := object{"id": id(n + 1), "key": m.key, "value": value}
		place(message, n)
		messages = append(messages, message)
	}
	return messages
}

// tell hands the messages to a driver in order, one by one or together, and then what is parked. died: the driver ended
// in between.
func tell(d *driver, messages []object, together bool) (died bool) {
	var commands []object
	for _, m := range messages {
		commands = append(commands, object{"op": "handle", "message": m})
	}
	if together {
		commands = []object{{"op": "handleAll", "messages": messages}}
	}
	for _, c := range commands {
		answer, died := d.try(c)
		if died {
			return true
		}
		if answer["error"] != nil {
			d.t.Errorf("%v: %v", c, answer["error"])
		}
	}
	_, died = d.try(object{"op": "retry"})
	return died
}

// told compares what the story left.
func (w *world) told(t *testing.T, what string) {
	t.Helper()
	for _, c := range []struct{ name, sql, want string }{
		{"effects", "SELECT string_agg(n::text, ' ' ORDER BY n) FROM effect", "1 2 3 5 6"},
		{"effects of a key", "SELECT string_agg(n::text, ' ' ORDER BY number) FROM effect WHERE key = 'a'", "1 2 3"},
		{"dead letters", "SELECT string_agg(event_id || ' ' || class, ' ') FROM inbox_dead", id(4) + " permanent"},
		{"parked", "SELECT count(*) FROM inbox_parked", "0"},
		{"decided", "SELECT count(*) FROM inbox_event WHERE state IN (0, 2)", "6"},
	} {
		if got := w.pg.Query(t, c.sql); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", what, c.name, got, c.want)
		}
	}
}

// A process dies before each message that it sends to Postgres, and another one is handed all messages again.
func TestACrashBetweenAnyTwoStepsLosesAndDoublesNothing(t *testing.T) {
	harness.Full(t)
	every := harness.Count(t, "every nth step dies in a run")
	each(t, func(t *testing.T, w *world) {
		survivor := w.start(t, nil)
		for _, together := range []bool{false, true} {
			for dieAt, died := 1, true; died; dieAt += every {
				w.clear(t)
				d := w.start(t, object{"dieAt": dieAt})
				died = tell(d, story(), together)
				d.kill()
				if tell(survivor, story(), together) {
					t.Fatalf("the other process died: %s", survivor.err)
				}
				w.told(t, fmt.Sprintf("together: %v, died before message %d to Postgres", together, dieAt))
				if !died && dieAt < 20 {
					t.Errorf("together: %v: the whole story took fewer than %d messages to Postgres", together, dieAt)
				}
			}
		}
	})
}

// Two processes are handed the same messages at once, as in a rebalance.
func TestTwoProcessesRacingHaveEachEffectOnce(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		drivers := []*driver{w.start(t, nil), w.start(t, nil)}
		for turn := range 8 {
			w.clear(t)
			var both sync.WaitGroup
			for _, d := range drivers {
				both.Go(func() { tell(d, story(), turn%2 == 1) })
			}
			both.Wait()
			w.told(t, fmt.Sprintf("turn %d", turn))
		}
	})
}

// An event whose handler kills its process is set aside after some deaths, and its neighbours are not.
func TestAnEventThatKillsItsProcessIsSetAside(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		poison := object{"id": id(1), "key": "a", "value": object{"n": 1, "fails": "death"}, "careful": true}
		next := object{"id": id(2), "key": "a", "value": object{"n": 2}, "careful": true}
		place(poison, 0)
		place(next, 1)
		deaths := 0
		for ; ; deaths++ {
			d := w.start(t, nil)
			answer, died := d.try(object{"op": "handle", "message": poison})
			if died && deaths < 5 {
				continue
			}
			if answer["outcome"] != "dead" {
				t.Fatalf("after %d deaths: got %v, want a dead letter", deaths, answer)
			}
			if answer := d.do(object{"op": "handle", "message": next}); answer["outcome"] != "done" {
				t.Errorf("the next event: got %v, want done", answer)
			}
			break
		}
		if deaths != 3 {
			t.Errorf("set aside after %d deaths, want 3", deaths)
		}
		const want = "process"
		if got := w.pg.Query(t, "SELECT class FROM inbox_dead"); got != want {
			t.Errorf("class of the dead letter: got %s, want %s", got, want)
		}
		if got := w.pg.Query(t, "SELECT count(*) FROM inbox_suspect"); got != "0" {
			t.Errorf("suspects left: got %s, want 0", got)
		}
	})
}
