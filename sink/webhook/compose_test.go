package webhook_test

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: the endpoint of docker-compose.yml refuses what the relay signs, takes what somebody else signed,
// or does not answer the question by which check looks for it. Seen to fail with the timestamp left out of what is
// signed, with every signature taken, and without HEAD.
func TestReceiverOfComposeTakesWhatTheRelaySigned(t *testing.T) {
	t.Parallel()
	const files = "../../deploy/compose/"
	receiver := exec.CommandContext(t.Context(), harness.Program(t, "python3", "python3"), files+"receiver.py",
		files+"webhook.secret", "0")
	printed, err := receiver.StdoutPipe()
	if err == nil {
		err = receiver.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for all := bufio.NewScanner(printed); all.Scan(); {
			lines <- all.Text()
		}
	}()
	next := func() string {
		select {
		case line := <-lines:
			return line
		case <-time.After(patience):
			t.Fatal("the receiver prints nothing more")
			return ""
		}
	}
	t.Cleanup(func() { // the context has ended, so it was killed
		for range lines { // what it has printed since
			continue
		}
		_ = receiver.Wait()
	})
	port, listens := strings.CutPrefix(next(), "listening on port ")
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
	ours := driver(func(c *webhook.Config) { c.SecretFile = files + "webhook.secret" })
	submit(t, sinktest.NewFlow(t, ours), sinktest.Events("order", 0, 1)...)
	if got, want := next(), "/order key-0 - 0 000000000"; got != want {
		t.Errorf("the receiver printed %q, want %q", got, want)
	}
	if text, err := ours.Examine(t.Context(), "order"); err != nil || !strings.Contains(text, "204 to HEAD") {
		t.Errorf("examined: got %q, %v", text, err)
	}
}
