package packages

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// scenario is a list of steps. One with hows runs once for each of them, with it in place of {how}.
type scenario struct {
	Name    string
	Hows    []string
	Options object
	Steps   []step
}

// step is a command for the driver, with fields that its answer must have, or a query and its answer.
type step struct {
	Do        object
	Want      object
	WantError string
	SQL       string
}

// UnmarshalJSON reads want as an answer of the driver or of a query.
func (s *step) UnmarshalJSON(text []byte) error {
	var raw struct {
		Do        object
		Want      any
		WantError string
		SQL       string
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*s = step{Do: raw.Do, WantError: raw.WantError, SQL: raw.SQL}
	switch want := raw.Want.(type) {
	case object:
		s.Want = want
	case string:
		s.Want = object{"answer": want}
	}
	return nil
}

// repeated is text such as x×3000.
var repeated = regexp.MustCompile(`"(.)×(\d+)"`)

func scenarios(t *testing.T, file string) (all []scenario) {
	t.Helper()
	text, err := os.ReadFile(root("contract/" + file))
	if err != nil {
		t.Fatal(err)
	}
	text = repeated.ReplaceAllFunc(text, func(match []byte) []byte {
		parts := repeated.FindSubmatch(match)
		n, _ := strconv.Atoi(string(parts[2]))
		return []byte(`"` + strings.Repeat(string(parts[1]), n) + `"`)
	})
	var templates []scenario
	if err := json.Unmarshal(text, &templates); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, s := range templates {
		if len(s.Hows) == 0 {
			all = append(all, s)
		}
		for _, how := range s.Hows {
			text, err := json.Marshal(s.Steps)
			if err != nil {
				t.Fatal(err)
			}
			one := scenario{Name: strings.ReplaceAll(s.Name, "{how}", how), Options: s.Options}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "{how}", how)), &one.Steps); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
	}
	return all
}

// MarshalJSON is the form of the file.
func (s step) MarshalJSON() ([]byte, error) {
	want := any(s.Want)
	if answer, ok := s.Want["answer"]; ok {
		want = answer
	}
	return json.Marshal(object{"do": s.Do, "want": want, "wantError": s.WantError, "sql": s.SQL})
}

func TestEmittersKeepTheContract(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		d := w.start(t, nil)
		names := d.open(object{"op": "open"})["emitters"].([]any)
		for _, name := range names {
			for _, s := range scenarios(t, "emit.json") {
				t.Run(fmt.Sprintf("%s/%s", name, s.Name), func(t *testing.T) {
					w.clear(t)
					d.t = t
					for _, one := range s.Steps {
						if one.Do != nil {
							one.Do["with"] = name
						}
						w.step(t, d, one, 0)
					}
				})
			}
		}
	})
}

func TestInboxesKeepTheContract(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) { keepsTheContract(t, w, 1) })
}

// Breaks it catches: a coroutine that has its effect outside the transaction of its event, ends that, or outlives it.
func TestHandlersOfAsyncioKeepTheContract(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "contracts with handlers of asyncio") == 0 {
		t.Skip("at night")
	}
	command := slices.Insert(languages["Python"](t), 1, "HANDLERS=asyncio")
	w := newWorld(t, harness.Postgres(t), command)
	keepsTheContract(t, w, 5) // two threads and a loop have to come to their turns
	w.clear(t)
	f := newBrokerFlow(t, w, "redis-stream")
	f.emit(t, 1)
	d := f.read(t)
	f.emit(t, 300)
	f.decided(t, f.sent, d)
	f.judge(t)
	if answer := d.do(object{"op": "stop"}); answer["error"] != nil { // it cancels the task
		t.Errorf("stop: %v", answer["error"])
	}
	if got := w.pg.Query(t, "SELECT count(*) FROM inbox_offset WHERE holder IS NOT NULL"); got != "0" {
		t.Errorf("topics that are not released by a task that was cancelled: got %s, want 0", got)
	}
}

// keepsTheContract runs the scenarios. Handlers have so many times the time that those give them.
func keepsTheContract(t *testing.T, w *world, patience float64) {
	t.Helper()
	d := w.start(t, nil)
	for _, s := range scenarios(t, "inbox.json") {
		t.Run(s.Name, func(t *testing.T) {
			w.clear(t)
			d.t = t
			options := object{}
			maps.Copy(options, s.Options) // which scenarios share
			if limit, limited := options["handlerTimeoutMs"].(float64); limited {
				options["handlerTimeoutMs"] = limit * patience
			}
			d.open(object{"op": "open", "options": options})
			for n, one := range s.Steps {
				w.step(t, d, one, n)
			}
		})
	}
}

func (w *world) step(t *testing.T, d *driver, one step, n int) {
	t.Helper()
	switch {
	case one.SQL != "" && !strings.HasPrefix(one.SQL, "SELECT"):
		w.pg.Exec(t, one.SQL)
		return
	case one.SQL != "":
		got := w.pg.Query(t, one.SQL)
		if want := one.Want["answer"]; got != want {
			t.Fatalf("step %d, %s: got %.300q, want %.300q", n, one.SQL, got, want)
		}
		return
	}
	if message, ok := one.Do["message"].(object); ok {
		place(message, n)
	}
	several, _ := one.Do["messages"].([]any)
	for i, message := range several {
		place(message.(object), 100*n+i)
	}
	answer := d.do(one.Do)
	if one.WantError != "" {
		if text, _ := answer["error"].(string); !strings.Contains(text, one.WantError) {
			t.Fatalf("step %d, %.300s: got %v, want an error with %q", n, fmt.Sprint(one.Do), answer, one.WantError)
		}
	}
	for key, want := range one.Want {
		if got := answer[key]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("step %d, %.300s: %s: got %v, want %v; the answer: %v", n, fmt.Sprint(one.Do), key, got, want, answer)
		}
	}
}

// place gives a message the place in its topic that it does not name.
func place(message object, offset int) {
	for key, value := range map[string]any{"topic": "orders", "partition": 0, "offset": offset} {
		if _, ok := message[key]; !ok {
			message[key] = value
		}
	}
}
