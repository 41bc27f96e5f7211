package web_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// widths are a phone, a small window and a large one.
var widths = []int64{1440, 900, 390}

// axe is the text of axe-core, which looks for what keeps people from using a page.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.NodeModules(t), "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantAccessible fails for each finding of axe-core on the page as it stands.
func (b *tab) wantAccessible(what string) {
	b.t.Helper()
	if b.text("typeof axe") == "undefined" {
		b.do("load axe", chromedp.Evaluate[chromedp.Void](axe(b.t)+";void 0"))
	}
	b.do("run axe", chromedp.Evaluate[chromedp.Void](`window.found = "";
		axe.run(document, {resultTypes: ["violations"]}).then((r) => {
			window.found = "done" + r.violations.flatMap((v) => v.nodes.map((n) =>
				"\n" + v.id + ": " + n.target.join(" ") + " " + n.failureSummary)).join("");
		}, (e) => { window.found = "axe failed: " + e }); void 0`))
	b.wait("axe is done", `window.found !== ""`)
	if got := b.text("window.found"); got != "done" {
		b.t.Errorf("%s: axe-core found: %s", what, strings.TrimPrefix(got, "done"))
	}
}

// atEachWidth looks at what is open, a page or a dialog, and keeps pictures.
func (b *tab) atEachWidth(name string) {
	b.t.Helper()
	for _, width := range widths {
		b.screen(width, map[int64]string{1440: "light", 900: "light", 390: "dark"}[width])
		what := fmt.Sprintf("%s at %d", name, width)
		b.wantFits(what)
		b.wantNothingCut(what)
		b.wantAccessible(what)
		b.wantOneRow(what)
		if width != 900 { // a picture takes half a second
			b.picture(fmt.Sprintf("%s-%d", name, width))
		}
	}
	b.screen(1440, "light")
}

// wantOneRow fails if the header of a healthy, connected relay takes a second row. The list of relays shows no role in
// its header.
func (b *tab) wantOneRow(what string) {
	b.t.Helper()
	if got := b.text(`document.getElementById("feed").dataset.state !== "live" ||
		(document.getElementById("role")?.dataset.tone ?? "good") !== "good" ? 0 : ((middles) =>
		Math.round(Math.max(...middles) - Math.min(...middles)))([...document.querySelectorAll("header.top > *")].map((n) =>
		n.getBoundingClientRect()).filter((r) => r.height > 0).map((r) => (r.top + r.bottom) / 2))`); len(got) > 1 {
		b.t.Errorf("%s: the header's parts are %s px apart, want one row", what, got)
	}
}

// Breaks it catches: a header that a long state beside a long name makes wider than a phone. Seen to fail with a header
// that may not take a second row while it is connected.
func TestHeaderFitsWhateverItSays(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/overview"))
	b.wait("it is connected", `document.getElementById("feed").dataset.state === "live"`)
	b.choose("#session")
	b.fill("#ask-name", strings.Repeat("Annabella ", 8))
	b.fill("#ask-token", planted+"\r")
	b.wait("it is logged in", `document.querySelector("#session .name") !== null`)
	for _, width := range []int64{1440, 900, 390, 320} {
		b.screen(width, "light")
		for _, state := range []string{"good active", "warn active, broker in trouble", "bad active, not ready",
			"warn paused", "warn active, degraded", "bad taking over the slot of another relay"} {
			tone, text, _ := strings.Cut(state, " ")
			// In one script: the next frame would put the relay's own state there again.
			got := b.text(fmt.Sprintf(`((pill) => { pill.dataset.tone = %q; pill.textContent = %q;
				document.getElementById("service").textContent = "a-service-with-a-long-name";
				return document.documentElement.scrollWidth - document.documentElement.clientWidth })(
				document.getElementById("role"))`, tone, text))
			if got != "0" {
				t.Errorf("%s at %d: the page is %s pixels wider than the screen", text, width, got)
			}
		}
	}
}

// here describes the focused element.
const here = `((n) => n.tagName + "#" + n.id + " " + (n.dataset.key || n.textContent.slice(0, 30)))(
	document.activeElement)`

// tabTo presses the tab key until the element has the focus; on the way each stop must be seen.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	var seen []string
	for range 80 {
		if b.text(fmt.Sprintf("document.activeElement.matches(%q)", selector)) == "true" {
			return
		}
		b.do("press tab", chromedp.KeyEvent("\t"))
		stop := b.text(here)
		seen = append(seen, stop)
		if got := b.text(`((n) => n === document.body || getComputedStyle(n).outlineStyle !== "none" &&
			n.getClientRects().length > 0)(document.activeElement)`); got != "true" {
			b.t.Errorf("the focus on %s is not to be seen", stop)
		}
	}
	b.t.Fatalf("the tab key leads to no %s, but to %q", selector, seen)
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.do("press "+fmt.Sprintf("%q", keys), chromedp.KeyEvent(keys))
}

// toPage goes to a page by its link.
func (b *tab) toPage(name, says string) {
	b.t.Helper()
	b.do("go to "+name, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = '#/%s'", name)))
	b.wait(name+" is there", has(says))
}
