package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
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
