package web_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// choose focuses the element and presses the key of Enter, as someone without a mouse does.
func (b *tab) choose(selector string) {
	b.t.Helper()
	b.focus(selector)
	b.do("choose "+selector, chromedp.KeyEvent("\r"))
}

// fill types into the field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.focus(selector)
	b.do("type into "+selector, chromedp.KeyEvent(text))
}

// focus waits until the element is there and takes the focus: one that is hidden, or behind a dialog that still closes,
// takes none, and the keys would go elsewhere.
func (b *tab) focus(selector string) {
	b.t.Helper()
	b.wait(selector+" has the focus", fmt.Sprintf(
		"((n) => n !== null && (n.focus(), document.activeElement === n))(document.querySelector(%q))", selector))
}

// A dead letter is looked at, repaired, replayed and discarded by keys alone. Breaks it catches: a payload that is not
// shown, a change that needs no token or takes a wrong one, a token that is kept where a script reads it, a replay that
// does not arrive (seen to fail with another path asked), what was done not shown.
func TestConsoleReplaysAndDiscardsDeadLetters(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(planted+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile, Read: web.ReadOpen})
	b := openTab(t)
	b.screen(1440, "light")
	b.fine = "status of 401" // a wrong token is typed below
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.wait("nothing is dead", has("No dead letters"))
	b.picture("no-dead-letters")
	s.pg.Exec(t, refused+`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		VALUES ('order', 'b', 'order_placed', '{"total": 1234567, "note": "<b>not bold</b>"}', '[]')`)
	b.wait("both are listed", has("order_refunded")+" && "+has("order_placed"))
	// What a person repairs before a replay: the headers were none.
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET headers = '{}' WHERE event_type = 'order_placed'")

	id := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq WHERE event_type = 'order_placed'")
	b.choose(fmt.Sprintf("[data-key='show %s']", id))
	b.wait("the payload is shown as it is",
		`document.getElementById("payload").textContent.includes('"total": 1234567') && document.getElementById("payload").textContent.includes("<b>not bold</b>")`)
	b.picture("dead-letter")
	b.choose("dialog.detail .actions button.main")
	b.wait("it asks first", has("Replay this event?"))
	b.fill("#ask-note", "headers repaired")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", "wrong")
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("a wrong token is refused", `document.querySelector("dialog.ask .problem").textContent.includes("token")`)
	if got := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_request"); got != "0" {
		t.Errorf("requests after a wrong token: got %s, want none", got)
	}
	b.atEachWidth("token-refused")
	b.fill("#ask-token", planted)
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("it is requested", has("Replay requested"))
	replayed := ""
	harness.Eventually(t, time.Minute, "the event arrives", func(context.Context) string {
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			replayed = string(harness.Header(r, "x-outbox-replay")) + " " + string(r.Value)
		})
		if replayed == "" {
			return "nothing in the topic"
		}
		return ""
	})
	if want := `1 {"note": "<b>not bold</b>", "total": 1234567}`; replayed != want {
		t.Errorf("replayed: got %s, want %s", replayed, want)
	}
	b.wait("it is not open any more", "!"+has("order_placed"))

	other := s.pg.Query(t, "SELECT original_id FROM outbox_events_dlq WHERE event_type = 'order_refunded'")
	b.choose(fmt.Sprintf("[data-key='show %s']", other))
	b.wait("its details are shown",
		fmt.Sprintf(`document.querySelector("dialog.detail").open &&
			document.querySelector("dialog.detail").textContent.includes(%q)`, other))
	b.choose("dialog.detail .actions button.danger")
	b.wait("it asks first", has("Discard this event?"))
	if got := b.text(`document.querySelector("#ask-token").getClientRects().length`); got != "0" {
		t.Error("the token is asked for again, want a session")
	}
	b.fill("#ask-note", "a test")
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("nothing is open", has("No dead letters"))
	if got := s.pg.Query(t,
		"SELECT string_agg(note, ', ' ORDER BY note) FROM outbox_events_dlq WHERE replayed_at IS NOT NULL OR discarded_at "+
			"IS NOT NULL"); got != "a test, headers repaired" {
		t.Errorf("notes: got %s, want both", got)
	}
	if kept := b.text(
		"JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie + location.href"); len(kept) == 0 ||
		strings.Contains(kept, planted) {
		t.Errorf("the browser keeps %s, want no token in it", kept)
	}
	if got := d.log.String(); strings.Contains(got, planted) || strings.Contains(got, "1234567") {
		t.Errorf("the log holds the token or a payload: %s", got)
	}
}
