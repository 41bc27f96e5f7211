package web_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// By keys alone someone asks where events are. Breaks caught: a page that does not open, an answer that is not shown
// or is another event's, an aggregate that is looked for as an id, a link to a queue that shows none, as queues are
// listed by their first events. Seen to fail with the texts of the answer left out, with the slash of an aggregate not
// looked at, and with the link by the event's own id.
func TestConsoleSaysWhereAnEventIs(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0"})
	b := openTab(t)
	b.screen(1440, "light")
	b.fine = "status of 400" // an id that is none is typed below
	s.pg.Exec(t, refused)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'f', 'order_placed', '{}')`)
	harness.Eventually(t, time.Minute, "one is published, one is dead", func(context.Context) string {
		if got := s.pg.Query(t,
			"SELECT (SELECT count(*) FROM cdc_relay_journal) || ' ' || (SELECT count(*) FROM outbox_events_dlq)"); got != "1 1" {
			return "published and dead: " + got
		}
		return ""
	})
	id := func(event string) string {
		return s.pg.Query(t, fmt.Sprintf("SELECT id FROM outbox_events WHERE event_type = '%s'", event))
	}
	look := func(text string) {
		b.do("empty the field", chromedp.Evaluate[chromedp.Void](`document.querySelector("#find-text").value = ""`))
		b.fill("#find-text", text+"\r")
	}
	b.do("open the console", chromedp.Navigate(d.url+"/#/find"))
	b.wait("the page is there", has("Where is my event?"))
	found := func(said string) string {
		return fmt.Sprintf(`document.getElementById("found").textContent.includes(%q)`, said)
	}
	look(id("order_placed"))
	b.wait("its place is shown", found("It was published to topic outbox.event.order, partition"))
	look(id("order_refunded"))
	b.wait("its death is shown", found("It is a dead letter of topic")+" && "+
		found("cdc-relay dlq replay "+id("order_refunded")))
	look("order/f")
	b.wait("the aggregate's event is shown", found(id("order_placed"))+" && !"+found(id("order_refunded")))
	b.atEachWidth("find")
	look("nonsense")
	b.wait("it says what is wrong", found("a uuid such as"))

	s.pg.Exec(t, absent)
	harness.Eventually(t, time.Minute, "they are parked", func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"); got != "12" {
			return got + " are parked"
		}
		return ""
	})
	look(s.pg.Query(t, "SELECT id FROM outbox_events WHERE aggregate_id = 'customer-1' ORDER BY seq DESC LIMIT 1"))
	b.wait("it waits", found("behind 3 others of its key"))
	b.choose("#found a")
	b.wait("the queue that it is in is shown", has("customer-1")+" && "+has("4 events")+" && !"+has("customer-2"))
}
