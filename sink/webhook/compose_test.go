package webhook_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Breaks it catches: the endpoint of docker-compose.yml refuses what the relay signs, takes what someone else signed,
// or does not answer the question by which check looks for it. Seen to fail with the timestamp left out of what is
// signed, with every signature taken, and without HEAD.
func TestReceiverOfComposeTakesWhatTheRelaySigned(t *testing.T) {
	t.Parallel()
	secret, err := filepath.Abs("../../deploy/compose/webhook.secret")
	if err != nil {
		t.Fatal(err)
	}
	receiver := harness.NewPython(t, "deploy/compose/receiver.py", secret, "0")
	receiver.Start()
	printed := func(n int) (line string) {
		harness.Eventually(t, patience, "the receiver prints", func(context.Context) string {
			lines := receiver.Lines()
			if len(lines) < n {
				return fmt.Sprintf("only %q", lines)
			}
			line = lines[n-1]
			return ""
		})
		return line
	}
	port, listens := strings.CutPrefix(printed(1), "listening on port ")
	if !listens {
		t.Fatalf("the receiver's first line: got %q", port)
	}
	driver := func(change func(*webhook.Config)) *webhook.Driver {
		c := webhook.Config{URL: "http://127.0.0.1:" + port + "/", IDHeader: "id", Timeout: patience}
		change(&c)
		d, err := webhook.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	stranger := sinktest.NewFlow(t, driver(func(c *webhook.Config) { c.Secret = secretOf("s") }))
	submit(t, stranger, sinktest.Events("order", 7, 1)...)
	if reason := awaitTrouble(t, stranger, sink.TopicTrouble); !strings.Contains(reason, "401") {
		t.Errorf("signed by a stranger: got %q, want 401", reason)
	}
	ours := driver(func(c *webhook.Config) { c.SecretFile = secret })
	submit(t, sinktest.NewFlow(t, ours), sinktest.Events("order", 0, 1)...)
	if got, want := printed(2), "/order key-0 - 0 000000000"; got != want {
		t.Errorf("the receiver printed %q, want %q", got, want)
	}
	if text, _, err := ours.Examine(t.Context(), "order"); err != nil || !strings.Contains(text, "204 to HEAD") {
		t.Errorf("examined: got %q, %v", text, err)
	}
}
