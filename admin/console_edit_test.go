package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a payload that a browser changes by showing it; an edit that does not arrive, or that the page
// does not show afterwards; a filter that does not choose; a dialog that is cut, or a field without a name. Seen to
// fail with the payload taken from JSON that the page has read (its number loses digits), with the filters not sent,
// and with the payload's label as a div.
func TestConsoleEditsDeadLetters(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(admin.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted)})
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
	b.wait("what was there before is shown", has("Before the edit of")+" && "+has("the headers were a list"))
	b.atEachWidth("edited")
}
