package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A test of a user runs from the commit to the message. Breaks it catches: a sandbox that begins without a function
// emit, or whose address is not the database's; a message of a transaction that was rolled back; a message that is
// never seen because it came while no one waited; processes that a sandbox leaves behind.
func TestSandboxesPublishWhatIsCommitted(t *testing.T) {
	harness.Full(t)
	demo := sync.OnceValue(func() string { return harness.Build(t, ".", "./cmd/cdc-relay-demo") })
	each(t, func(t *testing.T, w *world) {
		program := filepath.Join(t.TempDir(), "cdc-relay-demo")
		if err := os.Link(demo(), program); err != nil {
			t.Fatal(err)
		}
		answer := w.start(t, nil).do(object{"op": "sandbox", "program": program})
		const want = "outbox.event.order 42 0, outbox.event.order 42 2"
		if got := fmt.Sprint(answer["published"]); got != want {
			t.Errorf("got %s, want %s: %v", got, want, answer)
		}
		links, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if of, _ := os.Readlink(link); of == program {
				t.Errorf("a process is left behind: %s", link)
			}
		}
	})
}
