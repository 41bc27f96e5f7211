package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
)

// Two dead letters are replayed: one is repaired, of the other nothing is. Breaks it catches: a console that says of a
// replay that it is requested, and never that an event died again, and why; an outcome that is forgotten when someone
// looks at another page, or that a person cannot put away. Seen to fail with the request not followed, and with an
// outcome of the page instead of its own.
func TestConsoleTellsWhatBecameOfAReplay(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'b', 'made_' || n, '{}', '[]' FROM generate_series(1, 2) n`)
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/dead-letters"))
	b.wait("both are listed", has("made_1")+" && "+has("made_2"))
	s.pg.Exec(t, "UPDATE outbox_events_dlq SET headers = '{}' WHERE event_type = 'made_1'")
	for n := range 2 {
		tick := fmt.Sprintf("document.querySelectorAll('.tick input')[%d].click()", n)
		b.do("choose one", chromedp.Evaluate[chromedp.Void](tick))
	}
	b.choose("main .bulk button.main")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted)
	b.do("confirm", chromedp.KeyEvent("\r"))
	const said = `document.querySelector(".outcome").innerText`
	b.wait("it says what became of them", said+`.includes("1 of 2 published, 1 died again")`)
	b.wait("and why", said+`.includes("INVALID_HEADERS") && `+said+`.includes("replay them")`)
	b.atEachWidth("outcome")
	b.do("look elsewhere", chromedp.Evaluate[chromedp.Void]("location.hash = '#/parked'"))
	b.wait("it is elsewhere", has("Parked events"))
	b.do("come back", chromedp.Evaluate[chromedp.Void]("location.hash = '#/dead-letters'"))
	b.wait("it is still there", said+`.includes("1 died again")`)
	b.choose(".outcome button")
	b.wait("it is put away", `document.querySelector(".outcome").hidden`)
}

// Breaks it catches: an alarm that a person at the console can only read about; one that is acknowledged without the
// token; one that stays after that. Seen to fail with a button that asks and sends nothing.
func TestConsoleAcknowledgesAlarms(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	s.pg.Exec(t, `INSERT INTO cdc_relay_alarms (source, kind, topic, partition, detail, repair, first_seen, last_seen,
 count) SELECT source, 'lost_data', topic, 1, 'records are gone', 'cdc-relay verify --repair', now(), now(), 1
FROM cdc_relay_source, unnest(ARRAY['orders', 'invoices']) topic`)
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen})
	b := openTab(t)
	b.screen(1440, "light")
	b.fine = "status of 401" // a wrong token is typed below
	b.do("open the console", chromedp.Navigate(d.url+"/"))
	const orders, invoices = "Alarm: lost data, topic orders", "Alarm: lost data, topic invoices"
	b.wait("both are shown", has(orders)+" && "+has(invoices)+" && "+has("cdc-relay verify --repair"))
	const open = "SELECT string_agg(topic, ' ' ORDER BY topic) FROM cdc_relay_alarms WHERE acknowledged_at IS NULL"
	id := s.pg.Query(t, "SELECT id FROM cdc_relay_alarms WHERE topic = 'orders'")
	b.choose(fmt.Sprintf("[data-key='acknowledge %s']", id))
	b.wait("it asks first", has("Acknowledge this alarm?"))
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", "wrong")
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("a wrong token is refused", `document.querySelector("dialog.ask .problem").textContent.includes("token")`)
	if got := s.pg.Query(t, open); got != "invoices orders" {
		t.Errorf("open after a wrong token: got %q, want both", got)
	}
	b.fill("#ask-token", planted)
	b.picture("acknowledge")
	b.do("confirm", chromedp.KeyEvent("\r"))
	b.wait("it is gone, the other is not", "!"+has(orders)+" && "+has(invoices))
	if got := s.pg.Query(t, open); got != "invoices" {
		t.Errorf("open: got %q, want the other one alone", got)
	}
	b.atEachWidth("alarm")
}
