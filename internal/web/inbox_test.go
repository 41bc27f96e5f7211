package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/doctor/install/inbox"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
)

// held gives a consumer two parked events for each of three keys, and a dead letter of a key of its own.
const held = `SELECT inbox.inbox_park('%[1]s', 'e' || i, 'outbox.event.order', 0, i,
		convert_to(CASE WHEN i <= 6 THEN 'p' || i %% 3 ELSE 'd' || i END, 'UTF8'),
		convert_to('{"total": 12345678901234567890, "note": "<b>not bold</b>"}', 'UTF8'), '{"tenant": "a"}',
		CASE WHEN i <= 6 THEN 'waits' ELSE 'died' END, 'no such customer', next_at => now() + interval '1 hour'),
	CASE WHEN i > 6 THEN inbox.inbox_failed('%[1]s', 'e' || i, 'no such customer at all') END
	FROM generate_series(1, 9) i`

// withInbox makes an inbox in the site's database, and opens it.
func (s *site) withInbox() *consumers.Desk {
	s.t.Helper()
	if _, err := inbox.Create(s.t.Context(), s.pg.Connect(s.t), "inbox", false); err != nil {
		s.t.Fatal(err)
	}
	return s.desk("inbox")
}

func (s *site) desk(schema string) *consumers.Desk {
	s.t.Helper()
	d, err := consumers.Open(s.t.Context(), consumers.Config{URL: s.pg.URL, Schema: schema})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(d.Close)
	return d
}

// Breaks it catches: a change that needs no token, takes what came after the count, is not in the log, or does what was
// not asked; a list of another consumer; a payload where none is to be shown, as text or not; a payload asked for as
// text that is not there as it is; a database without an inbox that looks like an empty one. Seen to fail without the
// token asked for, without the log line, with payloads always shown, with them shown as text though they are hidden,
// without the text, and with a consumer left out taken for the first.
func TestInboxOverHTTP(t *testing.T) {
	t.Parallel()
	s, _ := newSite(t)
	desk := s.withInbox()
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen, Inbox: desk})
	want := func(code int, method, path, body string, texts ...string) string {
		t.Helper()
		got, text, _ := d.try(method, path, body, "Content-Type", jsonType, "Authorization", bearer)
		if got != code {
			t.Errorf("%s %s %s: got %d %s, want %d", method, path, body, got, text, code)
		}
		for _, part := range texts {
			if !strings.Contains(text, part) {
				t.Errorf("%s %s: got %s, want %s in it", method, path, text, part)
			}
		}
		return text
	}
	want(200, "GET", "/api/v1/inbox", "", `"items": []`)
	s.pg.Exec(t, fmt.Sprintf(held, "billing"))
	want(200, "GET", "/api/v1/inbox", "", `"parked_events": 6`, `"parked_keys": 3`, `"dead_letters": 3`)
	want(400, "GET", "/api/v1/inbox/events", "", "consumer: missing")
	want(400, "GET", "/api/v1/inbox/events?consumer=billing&stat=dead", "", "unknown parameter")
	want(404, "GET", "/api/v1/inbox/events?consumer=shipping", "", "no such consumer", "billing")
	want(200, "GET", "/api/v1/inbox/events?consumer=billing&limit=2", "", `"e9"`, `"e8"`, `"next": "2"`)
	want(200, "GET", "/api/v1/inbox/events?consumer=billing&state=parked&key=p1", "", `"e1"`, `"events": 2`)
	want(200, "GET", "/api/v1/inbox/events/e7?consumer=billing", "", "12345678901234567890", `"tenant"`)
	want(200, "GET", "/api/v1/inbox/events/e7?consumer=billing&payload=text", "",
		`"payload_text": "{\"total\": 12345678901234567890, \"note\": \"\u003cb\u003enot bold\u003c/b\u003e\"}"`)
	want(400, "GET", "/api/v1/inbox/events/e7?consumer=billing&payload=txt", "", "allowed: text")
	want(404, "GET", "/api/v1/inbox/events/e77?consumer=billing", "", "no parked event")
	hidden := s.door(web.Config{Address: "127.0.0.1:0", HidePayloads: true, Inbox: desk})
	for _, text := range []string{"", "&payload=text"} {
		if _, text, _ = hidden.try("GET", "/api/v1/inbox/events/e7?consumer=billing"+text, ""); strings.Contains(text,
			"total") || !strings.Contains(text, `"payload_hidden": true`) {
			t.Errorf("where payloads are hidden: got %s", text)
		}
	}

	var counted struct {
		Count int
		Until string
	}
	text := want(200, "GET", "/api/v1/inbox/count?consumer=billing&kind=discard&type=died", "", `"count": 3`)
	if err := json.Unmarshal([]byte(text), &counted); err != nil {
		t.Fatal(err)
	}
	s.pg.Exec(t, "SELECT inbox.inbox_failed('billing', 'e6', 'late'), inbox.inbox_replay('billing', 'e7')")
	s.pg.Exec(t, "UPDATE inbox.inbox_dead SET type = 'died' WHERE event_id = 'e6'")
	if code, _, _ := d.try("POST", "/api/v1/inbox/discard", `{"consumer": "billing", "all": true}`, "Content-Type",
		jsonType); code != http.StatusUnauthorized {
		t.Errorf("without the token: got %d", code)
	}
	want(400, "POST", "/api/v1/inbox/discard", `{"consumer": "billing"}`, "want one of")
	want(400, "POST", "/api/v1/inbox/discard", `{"consumer": "billing", "filter": {}}`, "nothing is chosen")
	want(400, "POST", "/api/v1/inbox/discard", `{"consumer": "billing", "state": "replayed", "all": true}`,
		"allowed to change")
	want(404, "POST", "/api/v1/inbox/discard", `{"all": true}`, "no such consumer")
	want(200, "POST", "/api/v1/inbox/discard", fmt.Sprintf(`{"consumer": "billing", "note": "old", "who": "ann",
		"filter": {"type": "died", "until": %q}}`, counted.Until), `"chosen": 2`, `"done": 2`)
	want(200, "POST", "/api/v1/inbox/replay", `{"consumer": "billing", "state": "parked", "ids": ["e2"]}`, `"done": 1`)
	if got := s.pg.Query(t, `SELECT string_agg(event_id || ' ' || coalesce(resolved_by || ' ' || note, ''), ', '
		ORDER BY event_id) FROM inbox.inbox_dead WHERE replayed_at IS NULL`); got !=
		"e6 , e8 ann via api@127.0.0.1 old, e9 ann via api@127.0.0.1 old" {
		t.Errorf("dead letters: got %s, want the two that were counted and not replayed discarded", got)
	}
	if got := s.pg.Query(t, "SELECT next_at <= now() FROM inbox.inbox_parked WHERE event_id = 'e2'"); got != "true" {
		t.Error("e2 is not due")
	}
	if log := d.log.String(); !strings.Contains(log, `"audit":"inbox discard"`) || !strings.Contains(log, "type") ||
		strings.Contains(log, planted) {
		t.Errorf("log: got %s, want who did what, without the token", log)
	}
	for name, without := range map[string]*door{
		"no inbox": s.door(web.Config{Address: "127.0.0.1:0", Inbox: s.desk("public")}),
		"no desk":  s.door(web.Config{Address: "127.0.0.1:0"}),
	} {
		if code, text, _ := without.try("GET", "/api/v1/inbox", ""); code != http.StatusNotFound ||
			!strings.Contains(text, "no inbox") {
			t.Errorf("%s: got %d %s, want it said", name, code, text)
		}
	}
}

// By keys alone someone looks at what two consumers hold back, replays one, discards all that match, and has parked
// events tried. Breaks it catches: a page that a phone cuts, that axe refuses or keys do not reach; a text of an event
// that becomes code; an event of another consumer; a discard of what came after the count; numbers that stay as they
// were; a number of a payload that the browser has rounded. Seen to fail with the consumer left out of the change, with
// the list of the one before kept, with the tabs without names, and with the payload shown as the browser read it.
func TestConsoleShowsWhatConsumersHoldBack(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	desk := s.withInbox()
	d := s.door(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, planted), Read: web.ReadOpen, Inbox: desk})
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(d.url+"/#/inbox"))
	b.wait("it says that there is nobody", has("No consumer yet"))
	s.pg.Exec(t, fmt.Sprintf(held, "billing")+";"+fmt.Sprintf(held, "shipping"))
	s.pg.Exec(t, "SELECT inbox.inbox_discard('shipping', 'e9')")
	b.wait("both are there", has("6 events of 3 keys")+" && "+has("Events of billing")+" && "+has("3 open"))
	b.wait("the dead ones are listed", `document.querySelectorAll("main .tick input").length === 3`)
	b.atEachWidth("inbox-dead")
	b.tabTo("[data-key='show e8']")
	b.press("\r")
	b.wait("its payload is shown as it is",
		`document.getElementById("payload").textContent.includes("<b>not bold</b>") && `+has("tenant: a")+" && "+
			has("12345678901234567890"))
	b.atEachWidth("inbox-event")
	if got := b.text(`document.querySelector("dialog .command .copy").dataset.copy`); got !=
		"cdc-relay inbox replay --consumer=billing e8" {
		t.Errorf("the command: got %s", got)
	}
	b.tabTo("dialog [data-key='replay this']")
	b.press("\r")
	b.wait("it asks first", has("Replay this event of billing?"))
	b.fill("#ask-note", "customer created")
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", planted+"\r")
	b.wait("it is done", has("1 of 1 replayed")+` && document.querySelectorAll("main .tick input").length === 2 && `+
		has("7 events of 4 keys")+" && "+has("2 open"))
	b.tabTo("[data-key='state replayed']")
	b.press("\r")
	b.wait("who did it is shown", has("replayed by ann via console@127.0.0.1: customer created"))
	b.tabTo("[data-key='state dead']")
	b.press("\r")
	b.wait("the others are there", `document.querySelectorAll("main .tick input").length === 2`)
	b.tabTo("[data-key='discard matching']")
	b.press("\r")
	b.wait("it says how many", has("Discard 2 dead letters of billing?"))
	s.pg.Exec(t, "SELECT inbox.inbox_failed('billing', 'e6', 'late')")
	b.press("\r")
	b.wait("it is done, and the late one is left", has("2 of 2 discarded")+
		` && document.querySelectorAll("main .tick input").length === 1`)

	b.tabTo("[data-key='consumer shipping']")
	b.press("\r")
	b.wait("the other's are listed", has("Events of shipping")+" && "+has("2 open"))
	b.tabTo("[data-key='state parked']")
	b.press("\r")
	b.wait("its keys wait", has("1 of its key behind it")+` && document.querySelectorAll("main .tick input").length === 3`)
	b.atEachWidth("inbox-parked")
	b.tabTo("#choose-all")
	b.press(" ")
	b.tabTo("[data-key='replay chosen']")
	b.press("\r")
	b.wait("it asks first", has("Try now 3 parked events of shipping?"))
	b.press("\r")
	b.wait("they are due", has("3 of 3 replayed"))
	if got := s.pg.Query(t, `SELECT string_agg(c.name || ' ' || q.n, ', ' ORDER BY c.name) FROM inbox.inbox_consumer c,
		LATERAL (SELECT count(*) AS n FROM inbox.inbox_parked p WHERE p.consumer = c.consumer AND next_at <= now()) q`,
	); got != "billing 1, shipping 3" {
		t.Errorf("due: got %s, want the replayed one of billing, and the three of shipping", got)
	}
}
