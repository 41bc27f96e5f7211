package packages

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The inbox in memory has the outcomes of the real one for the same story. Breaks it catches: an event that overtakes
// one of its key, or is handled twice; an assertion about emitted events that always holds.
func TestTestKitsHaveTheRulesOfTheInbox(t *testing.T) {
	harness.Full(t)
	each(t, func(t *testing.T, w *world) {
		d := w.start(t, nil)
		messages := append(story(), object{"id": id(1), "key": "a", "value": object{"n": 1}},
			object{"id": id(7), "key": "d", "type": "Other"})
		answer := d.do(object{"op": "kit", "deliver": messages})
		for name, want := range map[string]string{
			"outcomes": "done parked parked dead done done duplicate ignored",
			"retried":  "done, done",
			"dead":     id(4) + " never",
			"parked":   "0",
		} {
			if got := fmt.Sprint(answer[name]); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
		if t.Failed() {
			t.Logf("the answer: %v", answer)
		}
	})
}
