package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A flood of one reason, and one dead letter of another. Breaks it catches: a list of identical rows without a count;
// an action on a group that concerns others.
func TestConsoleGroupsDeadLettersByReason(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', i, 'flood', '{}', '[]' FROM generate_series(1, 8) i;
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('no topic', 'a', 'other', '{}')`)
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	const groups = `[...document.querySelectorAll(".reasons tbody tr")].map((r) => r.cells[0].textContent + " " +
		r.querySelector(".tag").textContent).sort().join(", ")`
	b.wait("each reason is a line with its count", groups+` === "1 INVALID_TOPIC, 8 INVALID_HEADERS"`)
	b.wait("all are listed", rows+" === 9")
	b.picture("reasons")
	b.choose("[data-key='reason INVALID_HEADERS permanent']")
	b.wait("the group is listed", rows+" === 8")
	for _, width := range []int64{390, 1440} {
		b.screen(width, "light")
		b.wantFits("a group of dead letters")
	}
	b.choose("[data-key='discard matching']")
	b.wait("the action is on the group", has("Discard 8 dead letters?"))
	if got := b.text(`document.querySelector("dialog.ask .command .copy").dataset.copy`); !strings.Contains(got,
		"cdc-relay dlq discard ") || !strings.Contains(got, "--code=INVALID_HEADERS") {
		t.Errorf("the command: got %s, want that of the group", got)
	}
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("the other one is left", groups+` === "1 INVALID_TOPIC"`)
	if got := s.pg.Query(t, `SELECT string_agg(DISTINCT event_type, ' ') FROM outbox_events_dlq
		WHERE discarded_at IS NULL`); got != "other" {
		t.Errorf("open dead letters: got those of %s, want the other reason's alone", got)
	}
}

// Dead letters of one reason have one mistake. Breaks it catches: an edit that does not concern the group alone, that
// is not sent, or that says nothing of those that cannot be edited; a number that the browser has rounded.
func TestConsoleEditsAGroupOfDeadLetters(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', i, 'flood', '{"n": 1}', '[]' FROM generate_series(1, 3) i;
		INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('no topic', 'a', 'other', '{}')`)
	harness.Eventually(t, 30*time.Second, "dead letters", s.deadLetters(t, "4"))
	s.pg.Exec(t, `UPDATE outbox_events_dlq SET headers = '{"tenant": 1}' WHERE event_type = 'flood';
		UPDATE outbox_events_dlq SET payload = '7' WHERE aggregate_id = '3'`)
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.choose("[data-key='reason INVALID_HEADERS permanent']")
	b.wait("the group is listed", rows+" === 3")
	b.choose("[data-key='edit matching']")
	b.wait("the edit is of the group", has("Edit 3 dead letters?"))
	b.do("edit", chromedp.Evaluate[chromedp.Void](`(() => {
		document.getElementById("merge-payload").value = '{"m": 12345678901234567890}';
		document.getElementById("merge-headers").value = '{"tenant": "x"}'; })()`))
	b.atEachWidth("edit-group")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("it says what could not be edited", has("2 edited. 1 cannot be")+" && "+has("not a JSON object"))
	harness.Eventually(t, time.Minute, "the events arrive", func(context.Context) string {
		n := 0
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			if string(r.Value) == `{"m": 12345678901234567890, "n": 1}` && string(harness.Header(r, "tenant")) == "x" {
				n++
			}
		})
		if n != 2 {
			return fmt.Sprint(n, " events in the topic")
		}
		return ""
	})
}
