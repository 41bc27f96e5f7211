package web_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The pictures of docs/images are made by: go test ./internal/web -run 'ShowsWhatFlows|ReplaysAndDiscards' -posing 2m
// -renew.
var (
	posing = flag.Duration("posing", 0, "how long the console's test keeps the relay busy before it takes pictures")
	renew  = flag.Bool("renew", false, "put the pictures that the docs show into docs/images")
)

// shown are those pictures, by their names among the artefacts.
var shown = []string{"overview-1440-light", "overview-1440-dark", "overview-390-dark", "dead-letter"}

// tab is a page of a real Chromium, and what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // guarded by mu
	fine   string   // a complaint with this in it is none; guarded by mu
}

// browser is the Chromium of all tests, without a window: each start takes seconds of CPU.
var browser struct {
	once sync.Once
	ctx  context.Context
	err  error
}

func startBrowser(binary string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	allocated, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(allocated)
	browser.ctx, browser.err = ctx, chromedp.Do(ctx)
	harness.AtEnd(func() error {
		defer endAllocator()
		defer endBrowser()
		return chromedp.Cancel(ctx)
	})
}

// openTab opens a page with cookies and storage of its own. It ends with the test, which fails if the page complained.
func openTab(t *testing.T) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs a browser")
	}
	binary := harness.Program(t, "chromium", "chromium")
	browser.once.Do(func() { startBrowser(binary) })
	if browser.err != nil {
		t.Fatalf("start Chromium: %v", browser.err)
	}
	ctx, endTab := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	listening := make(chan struct{})
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the tab: %v", err)
		}
		endTab()
		<-listening
		for _, said := range b.complaints() {
			t.Errorf("the page complained: %s", said)
		}
	})
	messages := chromedp.Console(ctx)
	go func() {
		defer close(listening)
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				b.complain(m.String() + " " + m.URL)
			}
		}
	}()
	err := chromedp.Listen(ctx, func(event any) {
		e, request := event.(*network.EventRequestWillBeSent)
		if request && !strings.HasPrefix(e.Request.URL, "http://127.0.0.1:") && !strings.HasPrefix(e.Request.URL, "data:") {
			b.complain("it asked for " + e.Request.URL)
		}
	})
	if err == nil {
		_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	}
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	return b
}

func (b *tab) complain(said string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fine != "" && strings.Contains(said, b.fine) {
		return
	}
	b.errors = append(b.errors, said)
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.errors...)
}

// do runs actions, for at most a minute together.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.picture("failed")
		b.t.Fatalf("%s: %v; the page complained: %q", what, err, b.complaints())
	}
}

// text returns the result of a JavaScript expression, or its exception, as when an element is not there yet.
func (b *tab) text(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(() => { try { return String("+expression+
		") } catch (e) { return String(e) } })()"))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v; the page complained: %q", expression, err, b.complaints())
	}
	return s
}

// wait waits until the expression is true.
func (b *tab) wait(what, expression string) {
	b.t.Helper()
	missed := true
	defer func() {
		if missed { // Eventually has ended the test
			b.picture("missed")
		}
	}()
	harness.Eventually(b.t, time.Minute, what, func(context.Context) string {
		if got := b.text(expression); got != "true" {
			return expression + " is " + got
		}
		return ""
	})
	missed = false
}

// has is an expression: the page shows the text.
func has(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// screen makes the page so wide, and light or dark.
func (b *tab) screen(width int64, scheme string) {
	b.t.Helper()
	height := int64(900)
	if width < 600 {
		height = 844
	}
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if width < 600 {
		options = append(options, chromedp.EmulateMobile)
	}
	b.do("set the screen", chromedp.EmulateViewport(width, height, options...))
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}); err != nil {
		b.t.Fatalf("choose the colours: %v", err)
	}
}

// picture keeps what the whole page looks like among the test's artefacts.
func (b *tab) picture(name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o644)
	}
	if err == nil && *renew && slices.Contains(shown, name) {
		err = os.WriteFile(filepath.Join("..", "..", "docs", "images", "console-"+name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Errorf("keep picture %s: %v", name, err)
	}
}

// wantFits fails if the page must be scrolled sideways.
func (b *tab) wantFits(what string) {
	b.t.Helper()
	if got := b.text("document.documentElement.scrollWidth - document.documentElement.clientWidth"); got != "0" {
		b.t.Errorf("%s: the page is %s pixels wider than the screen", what, got)
	}
}

// cut lists buttons, headings of columns and pills that are not shown whole, and tables that hide columns behind a
// scroll bar.
const cut = `[...document.querySelectorAll("main button, main th, .pill, .tabs a, main .scroll")].filter((n) => {
  const box = n.getBoundingClientRect();
  return box.width > 0 && (n.scrollWidth > n.clientWidth + 1 &&
    getComputedStyle(n).display !== "inline" || box.right > innerWidth + 1);
}).map((n) => n.tagName + " " + n.className + " " + n.textContent.slice(0, 30)).join("; ")`

// wantNothingCut fails if something that a person needs is outside the screen or its box.
func (b *tab) wantNothingCut(what string) {
	b.t.Helper()
	if got := b.text(cut); got != "" {
		b.t.Errorf("%s: cut off: %s", what, got)
	}
}

const (
	// refused is an event that dies: no topic may have such a name. absent are events that wait for a topic that is not
	// there.
	refused = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES
		('order/refund', 'order-4711', 'order_refunded',
		 '{"order": 4711, "amount": {"value": 99.5, "currency": "EUR"}, "reason": "damaged"}');`
	absent = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'invoice', 'customer-' || i % 3, 'invoice_sent', '{}' FROM generate_series(1, 12) i;`
)

const orders = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
	SELECT 'order', 'k' || i %% 50, 'order_placed', jsonb_build_object('n', i) FROM generate_series(1, %d) i`

// busy inserts events until the test ends, now more, now less.
func (s *site) busy() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	conn := s.pg.Connect(s.t)
	s.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			if _, err := conn.Exec(ctx, fmt.Sprintf(orders, 20+n/40%7*12+n%13)); err != nil {
				return
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Breaks it catches: a page that does not load, complains, loads anything from elsewhere or needs inline code; numbers
// that stand still under load; a page that does not fit a phone; one that cannot be used by keys, or by who hears it.
// Seen to fail with only the first frame shown, with tables that do not scroll, with a script in the page, with no word
// of the marks, and with columns without a heading.
func TestConsoleShowsWhatFlows(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(200, "")
	s.pg.Exec(t, refused+absent)
	s.busy()
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(s.url+"/"))
	b.wait("the relay is shown as active",
		`document.getElementById("role").textContent.startsWith("active") && document.getElementById("feed").textContent === "live"`)
	number := `parseFloat(document.getElementById("now-stream").textContent.replace(/,/g, ""))`
	b.wait("events stream", number+" > 0")
	b.wait("plots are drawn", `document.querySelectorAll(".plot canvas").length === 4`)
	received := `document.querySelector("[data-stage=stream] .line").textContent`
	before := b.text(received)
	b.wait("the numbers move", fmt.Sprintf("%s !== %q && %s > 0", received, before, number))
	b.wait("the topic is listed", has("outbox.event.order"))
	if *posing > 0 {
		time.Sleep(*posing)
	}
	for _, place := range []string{"overview", "parked", "dead-letters", "find", "system"} {
		b.do("go to "+place, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = '#/%s'", place)))
		b.wait("the page is there",
			fmt.Sprintf("document.querySelector('.tabs a[aria-current]').getAttribute('href') === '#/%s'", place))
		b.wait(place+" says what there is", has(map[string]string{
			"overview": "Throughput", "parked": "its topic or partition is unavailable", "dead-letters": "order_refunded",
			"find":   "Where is my event?",
			"system": "postgres.slot",
		}[place]))
		for _, width := range widths {
			for _, scheme := range []string{"light", "dark"} {
				b.screen(width, scheme)
				b.wait("the page is fed", `document.getElementById("feed").textContent === "live"`)
				b.wantFits(fmt.Sprintf("%s at %d", place, width))
				b.wantNothingCut(fmt.Sprintf("%s at %d", place, width))
				if scheme == "light" || width == 390 {
					b.wantAccessible(fmt.Sprintf("%s at %d, %s", place, width, scheme))
				}
				b.picture(fmt.Sprintf("%s-%d-%s", place, width, scheme))
			}
		}
		b.screen(1440, "light")
	}
	b.wait("it says how fast rows are marked", has("rows per second"))
	// The first stop of the tab key leads past the head of the page, then come the links and buttons, all visible.
	b.do("press tab", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#/overview"), chromedp.KeyEvent("\t"))
	if got := b.text("document.activeElement.id"); got != "skip" {
		t.Errorf("first stop of the tab key: got %q, want the link that skips the head", got)
	}
}
