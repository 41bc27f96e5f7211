package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// hostileTenant is a schema whose name is code, if a page, a shell or a statement takes it for that, with a dot in it.
const hostileTenant = `tenant.a"><img src=x onerror=alert(1)>'; $(id)` + "\u202e"

// tenantsOf makes an outbox in each schema.
func (s *site) tenantsOf(names ...string) {
	s.t.Helper()
	for _, name := range names {
		name = strings.ReplaceAll(name, `"`, `""`)
		s.pg.Exec(s.t, fmt.Sprintf(`CREATE SCHEMA "%[1]s";
			CREATE TABLE "%[1]s".outbox_events (LIKE outbox_events INCLUDING ALL)`, name))
	}
}

// insert commits an event of the id for each schema.
func (s *site) insert(id int, kind, headers string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.pg.Exec(s.t, fmt.Sprintf(`INSERT INTO "%s".outbox_events
			(id, aggregate_type, aggregate_id, event_type, payload, headers)
			VALUES ('00000000-0000-7000-8000-%012d', '%s', 'k%[2]d', 'made', '{"n": 1}', '%[4]s')`,
			strings.ReplaceAll(name, `"`, `""`), id, kind, headers))
	}
}

// Tenants have events with the same ids. Breaks it catches: a schema's name that becomes code on the page or in a
// shell; an action on a row, or on all that match, that is done to the events of another outbox, or to those of all; a
// choice of rows of several outboxes that is done to one of them only; an outbox that its own name in a list does not
// find. Seen to fail with rows told apart by their ids, with an action that sends no outbox, and with the schema's name
// cut at its first dot.
func TestConsoleActsOnTheOutboxOfARow(t *testing.T) {
	s, run := newSiteOf(t, "tenant*.outbox_events")
	tenants := []string{"tenant_1", "tenant_2", hostileTenant}
	s.tenantsOf(tenants...)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.insert(1, "order", "[]", tenants...)
	harness.Eventually(t, 30*time.Second, "three dead letters", s.deadLetters(t, "3"))
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.wait("all are listed", rows+" === 3")
	b.atEachWidth("dead-letters-of-several")
	s.wantPlainTexts(b)

	b.choose("[data-key='discard matching']")
	b.wait("it asks for an outbox", has("Choose an outbox first")+` && document.activeElement.id === "filter-outbox"`)
	b.choose(ofOutbox("outbox of ", hostileTenant))
	b.wait("its dead letter is listed", rows+" === 1")
	b.choose("[data-key='discard matching']")
	b.wait("one matches", `document.querySelector("dialog.ask h2").textContent === `+
		quotedText("Discard 1 dead letter of "+hostileTenant+".outbox_events?"))
	b.atEachWidth("ask-of-one")
	s.wantPlainTexts(b)
	wantWords(t, b.text(`document.querySelector("dialog.ask .command .copy").dataset.copy`),
		"dlq", "discard", "--outbox="+hostileTenant+".outbox_events", "--all")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("it is done", outcomeSays("1 of 1 discarded"))
	s.wantDead("discarded open open")

	// Two rows with one id: both are meant, each of its outbox.
	b.do("show all", chromedp.Evaluate[chromedp.Void](
		`(() => { const f = document.getElementById("filter-outbox"); f.value = ""; f.dispatchEvent(new Event("change")) })()`))
	b.wait("the others are listed", rows+" === 2")
	s.pg.Exec(t, `UPDATE outbox_events_dlq SET headers = '{}' WHERE source = (SELECT source FROM cdc_relay_source
		WHERE table_name = 'tenant_2.outbox_events')`)
	b.choose("#choose-all")
	b.press(" ")
	b.choose("[data-key='replay chosen']")
	b.wait("it says of how many", has("Replay 2 dead letters?")+" && "+has("They are of 2 outboxes."))
	b.press("\r")
	b.wait("it adds up what they came to", outcomeSays("1 of 2 published, 1 died again"))
	s.wantDead("discarded replayed open")

	b.wait("one is left", rows+" === 1")
	b.choose(ofOutbox("show ", "tenant_1"))
	b.wait("its details name the outbox", has("tenant_1.outbox_events")+` && document.querySelector("dialog.detail").open`)
	wantWords(t, b.text(`document.querySelector("dialog.detail .command .copy").dataset.copy`), "dlq", "replay",
		"--outbox=tenant_1.outbox_events", "00000000-0000-7000-8000-000000000001")
	b.choose("#edit")
	b.fill("#edit-headers", "")
	b.do("edit", chromedp.Evaluate[chromedp.Void](`document.getElementById("edit-headers").value = ""`))
	b.fill("#ask-note", "mended\r")
	b.wait("nothing is open", has("No dead letters"))
	s.wantDead("discarded replayed replayed")
	s.findOf(b)
	s.retryOf(b)
}

// findOf looks for an event that two outboxes have, and follows the link to it.
func (s *site) findOf(b *tab) {
	s.t.Helper()
	s.insert(2, "order", "[]", "tenant_1", hostileTenant)
	harness.Eventually(s.t, 30*time.Second, "two more dead letters", s.deadLetters(s.t, "5"))
	b.toPage("find", "Where is my event?")
	b.fill("#find-text", "00000000-0000-7000-8000-000000000002\r")
	b.wait("it asks for an outbox", `document.activeElement.id === "filter-outbox"`)
	for _, name := range []string{hostileTenant, "tenant_1"} {
		b.do("name it", chromedp.Evaluate[chromedp.Void](`document.getElementById("filter-outbox").value = `+
			quotedText(name)))
		b.fill("#find-text", "\r")
		b.wait("it is found", has("It is a dead letter of topic")+
			` && document.querySelector(".found bdi").textContent === `+quotedText(name+".outbox_events"))
	}
	b.atEachWidth("find-of-several")
	b.choose("#found a")
	b.wait("the dead letter of that outbox is listed", rows+` === 1 &&
		document.getElementById("filter-outbox").value === "tenant_1.outbox_events"`)
}

// retryOf makes one of two keys due that are the same but for their outbox.
func (s *site) retryOf(b *tab) {
	s.t.Helper()
	s.insert(3, "absent", "{}", "tenant_1", hostileTenant)
	b.toPage("parked", "its topic or partition is unavailable")
	b.wait("both are listed", rows+" === 2")
	b.atEachWidth("parked-of-several")
	s.wantPlainTexts(b)
	b.choose(ofOutbox("retry ", hostileTenant, 3))
	b.wait("it asks", has("Retry this key now of "+hostileTenant))
	b.press("\r")
	b.wait("it is requested", has("Retry requested"))
	if got := s.pg.Query(s.t, `SELECT string_agg(o.table_name, ' ') FROM cdc_relay_request r JOIN cdc_relay_source o
		ON o.source = (r.filter ->> 'source')::int WHERE r.kind = 'retry'`); got != hostileTenant+".outbox_events" {
		s.t.Errorf("the request is about %q", got)
	}
}

// ofOutbox selects what a row of event 1, or of the one given, has by that key.
func ofOutbox(key, schema string, n ...int) string {
	id := 1
	if len(n) > 0 {
		id = n[0]
	}
	return "[data-key=" + quotedText(fmt.Sprintf(`%s[%s,"00000000-0000-7000-8000-%012d"]`, key,
		quotedText(schema+".outbox_events"), id)) + "]"
}

// quotedText is the text as JavaScript and selectors quote it, with characters as they are.
func quotedText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// wantPlainTexts fails if a text became an element, or turns around what stands beside it.
func (s *site) wantPlainTexts(b *tab) {
	s.t.Helper()
	if got := b.text(`document.querySelectorAll("img[src=x], main script").length`); got != "0" {
		s.t.Errorf("elements that came with texts: got %s, want none", got)
	}
	if got := b.text(turned); got != "" {
		s.t.Errorf("what stands behind these is turned around: %s", got)
	}
}

// wantWords fails if a shell reads other words behind cdc-relay.
func wantWords(t *testing.T, line string, words ...string) {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "bash", "-c", `cdc-relay() { printf '%s\n' "$@"; }; `+line)
	shell.Dir, shell.Env = t.TempDir(), append(shell.Environ(), "LC_ALL=C.UTF-8")
	out, err := shell.CombinedOutput()
	if want := strings.Join(words, "\n") + "\n"; err != nil || string(out) != want {
		t.Errorf("the command %s: a shell reads %q, %v; want %q", line, out, err, want)
	}
}

// wantDead waits until the dead letters of event 1 are so, that of the hostile schema first, then that of tenant_2.
func (s *site) wantDead(want string) {
	s.t.Helper()
	harness.Eventually(s.t, 30*time.Second, "the dead letters are "+want, func(context.Context) string {
		if got := s.pg.Query(s.t, `SELECT string_agg(CASE WHEN d.discarded_at IS NOT NULL THEN 'discarded'
			WHEN d.replayed_at IS NOT NULL THEN 'replayed' ELSE 'open' END, ' ' ORDER BY o.table_name = 'tenant_1.outbox_events',
			o.table_name = 'tenant_2.outbox_events') FROM outbox_events_dlq d JOIN cdc_relay_source o USING (source)
			WHERE d.original_id = '00000000-0000-7000-8000-000000000001'`); got != want {
			return "got " + got
		}
		return ""
	})
}

// A name of an outbox that no list gives is answered by what is wrong with it. Breaks it catches: an unknown outbox
// that becomes all; a name that the server chokes on.
func TestOutboxesAreNamedOverHTTP(t *testing.T) {
	t.Parallel()
	s, run := newSiteOf(t, "tenant*.outbox_events")
	s.tenantsOf("tenant_1", hostileTenant)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.insert(1, "order", "[]", "tenant_1", hostileTenant)
	harness.Eventually(t, 30*time.Second, "two dead letters", s.deadLetters(t, "2"))
	for name, want := range map[string]int{"tenant_1": 200, "tenant_1.outbox_events": 200, `"tenant_1".outbox_events`: 200,
		hostileTenant: 200, hostileTenant + ".outbox_events": 200, "": 200, "tenant_9": 404, "tenant_1.other": 404,
		`"tenant_1`: 400, "a.b.c": 400, "\x00": 400, "\xff": 400, strings.Repeat("x", 5000): 400} {
		code, body, err := d.ask(http.MethodGet, "/api/v1/dlq?outbox="+url.QueryEscape(name), "")
		if err != nil {
			t.Fatal(err)
		}
		var page struct{ Items []struct{ Outbox string } }
		_ = json.Unmarshal([]byte(body), &page)
		if code != want || code == 200 && len(page.Items) != map[bool]int{true: 2, false: 1}[name == ""] {
			t.Errorf("outbox %.40q: got %d %.200s, want %d", name, code, body, want)
		}
	}
}
