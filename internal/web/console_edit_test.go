package web_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a payload that a browser changes by showing it; an edit that does not arrive, or that the page
// does not show afterwards; a filter that does not choose; a dialog that is cut, or a field without a name. Seen to
// fail with the payload taken from JSON that the page has read (its number loses digits), and with it shown so, now and
// as it was before the edit, with the filters not sent, and with the payload's label as a div.
func TestConsoleEditsDeadLetters(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', id, 'order_' || id, '{"n": 12345678901234567890, "a": 1}', '[]' FROM unnest('{a,b}'::text[]) id`)
	harness.Eventually(t, 30*time.Second, "two dead letters", s.deadLetters(t, "2"))
	id := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq WHERE aggregate_id = 'a'")
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.wait("both are listed", has("order_a")+" && "+has("order_b"))
	b.fill("#filter-aggregate", "order/a")
	b.do("filter", chromedp.KeyEvent("\r"))
	b.wait("one is listed", has("order_a")+" && !"+has("order_b"))

	b.choose(fmt.Sprintf("[data-key='show %s']", id))
	b.wait("its number is shown as it is",
		`document.getElementById("payload").textContent.includes("12345678901234567890")`)
	b.choose("#edit")
	b.wait("it asks first", has("Edit and replay this event?"))
	b.do("edit", chromedp.Evaluate[chromedp.Void](`(() => {
		const payload = document.getElementById("edit-payload");
		payload.value = payload.value.replace('"a": 1', '"a": 2');
		document.getElementById("edit-headers").value = '{"tenant": "x"}'; })()`))
	b.atEachWidth("edit")
	b.fill("#ask-note", "the headers were a list")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted)
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("it is requested", has("Edited, and replay requested"))
	published := ""
	harness.Eventually(t, time.Minute, "the event arrives", func(context.Context) string {
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			published = string(r.Value) + " " + string(harness.Header(r, "tenant"))
		})
		if published == "" {
			return "nothing in the topic"
		}
		return ""
	})
	if want := `{"a": 2, "n": 12345678901234567890} x`; published != want {
		t.Errorf("published: got %s, want %s", published, want)
	}
	b.do("show what was replayed", chromedp.Evaluate[chromedp.Void](
		`[...document.querySelectorAll(".segments button")].find((x) => x.textContent === "Replayed").click()`))
	b.choose(fmt.Sprintf("[data-key='show %s']", id))
	b.wait("what was there before is shown", has("Before the edit of")+" && "+has("the headers were a list")+
		` && document.querySelector("dialog.detail").textContent.match(/12345678901234567890/g).length === 2`)
	b.atEachWidth("edited")
}

// What someone edits is all that changes. Breaks it catches: line breaks that a field of a page has made its own, in a
// payload that no one or that someone changed; a payload larger than a request that keeps its headers from being
// edited; an edit offered for a payload that a page cannot show, and would empty; a number among the headers that the
// browser has rounded. Seen to fail with the payload always sent, with the line breaks of the field, with a payload
// that is no text taken for none, and with the headers as the browser read them.
func TestConsoleEditsOnlyWhatSomebodyChanges(t *testing.T) {
	s, run := newSite(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload bytea, headers jsonb,
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz)`)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES
		('order', 'a', 'kept', 'one\015\012two\012', '[]'), ('order', 'b', 'changed', 'one\015\012two\015\012', '[]'),
		('order', 'c', 'binary', '{"a": "\377"}', '[]'),
		('order', 'd', 'large', convert_to(repeat('x', 1200000), 'UTF8'), '[]'),
		('order', 'e', 'headers', '{"n": 1}', '{"n": 12345678901234567890}')`)
	harness.Eventually(t, 30*time.Second, "five dead letters", s.deadLetters(t, "5"))
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.wait("they are listed", has("kept")+" && "+has("large"))
	b.choose("#session")
	b.wait("the token has the focus", `document.activeElement.id === "ask-token"`)
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("somebody is logged in", `document.querySelector("dialog.ask") === null`)
	show := func(event string) {
		b.choose(fmt.Sprintf("[data-key='show %s']", s.pg.Query(t, fmt.Sprintf(
			"SELECT original_id FROM outbox_events_dlq WHERE event_type = '%s'", event))))
		b.wait("its details are shown", fmt.Sprintf(`document.querySelector("dialog.detail").open &&
			document.querySelector("dialog.detail h2").textContent === %q`, event))
	}
	edit := func(event, change string) {
		show(event)
		b.choose("#edit")
		b.wait("it asks first", has("Edit and replay this event?"))
		b.do("edit", chromedp.Evaluate[chromedp.Void](`(() => {
			const payload = document.getElementById("edit-payload"), headers = document.getElementById("edit-headers");
			`+change+`})()`))
		b.fill("#ask-note", "edited\r")
		b.wait("it is requested", `document.querySelector("dialog.ask") === null &&
			!document.querySelector("dialog.detail").open`)
	}
	show("binary")
	if got := b.text(`document.getElementById("edit")`); got != "null" {
		t.Error("a payload that is no text can be edited")
	}
	b.press("\x1b")
	show("headers")
	b.choose("#edit")
	b.wait("a number among the headers is as it is",
		`document.getElementById("edit-headers")?.value.includes("12345678901234567890")`)
	b.press("\x1b")
	b.press("\x1b")
	edit("kept", `headers.value = '{"tenant": "x"}'`)
	edit("changed", `headers.value = ""; payload.value = payload.value.replace("two", "2")`)
	edit("large", `headers.value = ""`)
	harness.Eventually(t, time.Minute, "all three are edited", func(context.Context) string {
		return map[bool]string{false: "not yet"}[s.pg.Query(t, "SELECT count(*) FROM cdc_relay_edit") == "3"]
	})
	if got, want := s.pg.Query(t, `SELECT string_agg(event_type || ' ' || CASE WHEN length(payload) > 100 THEN
		length(payload)::text ELSE encode(payload, 'escape') END || ' ' || coalesce(headers::text, 'none'), ', '
		ORDER BY event_type) FROM outbox_events_dlq WHERE event_type IN ('kept', 'changed', 'large')`),
		"changed one\r\n2\r\n none, kept one\r\ntwo\n {\"tenant\": \"x\"}, large 1200000 none"; got != want {
		t.Errorf("dead letters: got %q, want %q", got, want)
	}
}
