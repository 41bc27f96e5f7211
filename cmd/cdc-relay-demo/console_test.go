package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const allArrived = "missing 0, duplicated 0, out of order 0"

// running is a demo whose console is up.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string // of the console
	said chan string
}

func startDemo(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	flags := append([]string{"--http-listen=127.0.0.1:0", "--rate=200", "--aggregates=7"}, args...)
	cmd, _, _ := command(ctx, t, environ, flags...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: cmd, said: make(chan string, 1)}
	lines := bufio.NewReader(out)
	var text strings.Builder
	for r.url == "" {
		line, err := lines.ReadString('\n')
		text.WriteString(line)
		if err != nil {
			_ = cmd.Wait()
			t.Fatalf("no console: %v; output:\n%s", err, text.String())
		}
		if _, rest, is := strings.Cut(line, "The console: "); is {
			r.url = strings.Fields(rest)[0]
		}
	}
	go func() {
		_, _ = io.Copy(&text, lines)
		r.said <- text.String()
	}()
	return r
}

// stop presses Ctrl-C and wants all events to have arrived.
func (r *running) stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	said := <-r.said
	_ = r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != cli.ExitDone || !strings.Contains(said, allArrived) {
		r.t.Errorf("got exit code %d, want 0 and %q:\n%s", code, allArrived, said)
	}
}

// ask sends a request as a page of the console does.
func (r *running) ask(method, path, body string) (code int, text string, err error) {
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Origin", r.url)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true // the process that answers may be another one the next time
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// scene is what the console shows; the error is that of a relay that is away.
func (r *running) scene() (s scene, err error) {
	_, text, err := r.ask(http.MethodGet, "/api/v1/demo", "")
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, err
}

// press asks for an incident, which must be accepted, and waits until none is played.
func (r *running) press(name string) scene {
	r.t.Helper()
	if code, text, err := r.ask(http.MethodPost, "/api/v1/demo/break",
		fmt.Sprintf(`{"incident": %q}`, name)); err != nil ||
		code != http.StatusAccepted {
		r.t.Fatalf("break %s: got %d, %v; want %d: %s", name, code, err, http.StatusAccepted, text)
	}
	var s scene
	harness.Eventually(r.t, 2*time.Minute, name+" is over", func(context.Context) string {
		var err error
		if s, err = r.scene(); err != nil {
			return err.Error()
		}
		return s.Playing
	})
	return s
}

// Breaks it catches: an incident of the console that does not end, loses something, cannot be played again, or in
// another order; a second one beside it; one that is not told, or told as another. Seen to fail with connections to the
// broker that are kept over its restart, with the answer to a kill sent after it, with the scene not shown to a relay
// that starts, and with a topic that was created again read back from the offsets of the one before.
func TestConsoleOfTheDemoBreaksOneAtATime(t *testing.T) {
	home := homeForServers(t)
	r := startDemo(t, []string{"TMPDIR=" + home}, "--pause=300ms")
	first, err := r.scene()
	if err != nil || len(first.Incidents) != 5 || len(first.Told) != 0 || first.Playing != "" {
		t.Fatalf("at the start: got %+v, %v; want five incidents and nothing told", first, err)
	}
	if code, text, _ := r.ask(http.MethodPost, "/api/v1/demo/break",
		`{"incident": "bank"}`); code != http.StatusConflict ||
		!strings.Contains(text, "no incident") {
		t.Errorf("an unknown incident: got %d, %s", code, text)
	}
	played := []string{"topic", "event", "relay", "event", "broker", "slot", "topic", "relay"}
	for n, name := range played {
		s := r.press(name)
		if len(s.Told) != n+1 {
			t.Fatalf("after %s: got %d incidents told, want %d", name, len(s.Told), n+1)
		}
		last := s.Told[n]
		for _, i := range first.Incidents {
			if i.Name == name && i.Label != last.Label {
				t.Errorf("%s: it is told as %q", name, last.Label)
			}
		}
		if last.Failed || !strings.HasSuffix(last.Over, allArrived+".") || !strings.Contains(last.Happens, "Look: ") {
			t.Errorf("%s: got %+v, want it to end with %q", name, last, allArrived)
		}
	}
	// While one lasts there is no other.
	if code, text, err := r.ask(http.MethodPost, "/api/v1/demo/break",
		`{"incident": "all"}`); code != http.StatusAccepted {
		t.Fatalf("all: got %d, %v: %s", code, err, text)
	}
	if code, text, _ := r.ask(http.MethodPost, "/api/v1/demo/break",
		`{"incident": "slot"}`); code != http.StatusConflict ||
		!strings.Contains(text, "already") {
		t.Errorf("while another one lasts: got %d, %s", code, text)
	}
	r.stop() // in the middle of it
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v; want nothing", left, err)
	}
}

// browse opens the console in a real Chromium.
func browse(t *testing.T, url string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(harness.Program(t, "chromium", "chromium")))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	allocated, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		endBrowser()
		endAllocator()
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(url)); err != nil {
		t.Fatalf("open the console: %v", err)
	}
	return ctx
}

// wait waits until an expression is true on the page.
func wait(ctx context.Context, t *testing.T, what, expression string) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, what, func(context.Context) string {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err != nil {
			return err.Error()
		}
		return map[bool]string{false: "not yet"}[is]
	})
}

// look keeps a picture of the page, and fails if it must be scrolled sideways.
func look(ctx context.Context, t *testing.T, width int64, name string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
		t.Fatal(err)
	}
	more, err := chromedp.Run(ctx, chromedp.Evaluate[int](
		"document.documentElement.scrollWidth - document.documentElement.clientWidth"))
	if err != nil || more != 0 {
		t.Errorf("%s at %d: the page is %d pixels wider than the screen, %v", name, width, more, err)
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(t.ArtifactDir(), fmt.Sprintf("%s-%d.png", name, width)), png, 0o644)
	}
	if err != nil {
		t.Errorf("keep a picture: %v", err)
	}
}

// In a real Chromium. Breaks it catches: buttons that are not there, do nothing or stay locked; a page that does not
// come back after a kill of the relay, or lists nothing then; one that does not fit a phone. Seen to fail with buttons
// that wait only once the relay, which is killed, shows that they do.
func TestConsoleOfTheDemoBreaksAllInTurn(t *testing.T) {
	harness.Full(t)
	if testing.Short() {
		t.Skip("left out by -short: it needs a browser")
	}
	home := homeForServers(t)
	r := startDemo(t, []string{"TMPDIR=" + home}, "--pause=6s") // the page says "no answer" after 5
	ctx := browse(t, r.url+"/")
	click := func(name string) {
		t.Helper()
		wait(ctx, t, "the button can be pressed", fmt.Sprintf(`document.querySelector("[data-break=%s]:enabled")`, name))
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](
			fmt.Sprintf(`(document.querySelector("[data-break=%s]").click(), true)`, name))); err != nil {
			t.Fatal(err)
		}
		wait(ctx, t, "the buttons wait", `document.querySelectorAll("[data-break]:disabled").length === 6`)
	}
	shows := func(text string) string {
		return fmt.Sprintf(`document.getElementById("break").innerText.includes(%q)`, text)
	}
	click("relay")
	wait(ctx, t, "it greys out", `document.documentElement.dataset.late !== undefined && `+shows("kill -9 of the relay"))
	for _, width := range []int64{390, 1440} {
		look(ctx, t, width, "killed")
	}
	wait(ctx, t, "it is told to its end", shows("It is started again")+" && "+shows(allArrived))
	wait(ctx, t, "the console is live again", `document.getElementById("role").dataset.tone === "good"`)
	click("all")
	wait(ctx, t, "all are told", `document.querySelectorAll("#break li").length === 6 && `+
		shows("All in turn …")+" && "+shows("A topic is deleted"))
	wait(ctx, t, "the last one is over", `document.querySelector("[data-break=all]:enabled") && `+
		shows("gets its events in order")+" && "+shows(allArrived))
	for _, width := range []int64{390, 900, 1440} {
		look(ctx, t, width, "all-over")
	}
	r.stop()
}
