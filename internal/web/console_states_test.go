package web_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// Breaks it catches: a console that is green while nothing can be published (seen to fail with the role alone as the
// pill, and with the pipes left alone), or that stays alarmed when that is over.
func TestConsoleIsNotGreenWithoutABroker(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(s.url+"/"))
	const tone, pipes = `document.getElementById("role").dataset.tone`, `document.querySelector(".flow").dataset.stopped`
	b.wait("it is green", tone+` === "good" && `+pipes+` === "no"`)
	port := s.broker.Port()
	s.broker.Close()
	s.pg.Exec(t, fmt.Sprintf(insertOrder, "{}"))
	b.wait("it is not green", tone+` === "bad" && `+pipes+` === "yes" && `+has("not ready")+" && "+has("broker"))
	for _, width := range []int64{1440, 900, 390} {
		b.screen(width, "light")
		b.wantFits(fmt.Sprintf("without a broker at %d", width))
		b.wantNothingCut(fmt.Sprintf("without a broker at %d", width))
		b.picture(fmt.Sprintf("no-broker-%d", width))
	}
	var err error
	if s.broker, err = embedded.StartFakeKafka(embedded.FakeKafkaConfig{Port: port, Topics: topics}); err != nil {
		t.Fatal(err)
	}
	b.wait("it is green again", tone+` === "good" && `+pipes+` === "no"`)
}

// Breaks it catches: a console that shows the WAL that is kept, and not what was stored so that no more is.
func TestConsoleShowsSpooledEvents(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	const emptyFrame = `\x28b52ffd0058010000` // of zstd: the row has no messages, and ends where nothing does
	s.pg.Exec(t, `INSERT INTO cdc_relay_spool SELECT source, 1, 99, 1::bigint << 62, now(), 1234, '`+emptyFrame+`'
		FROM cdc_relay_state`)
	s.pg.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '`+s.pg.Database+`'`)
	b := openTab(t)
	b.screen(1440, "light")
	b.do("open the console", chromedp.Navigate(s.url+"/"))
	b.wait("it shows spooled events",
		has("1,234 events are spooled")+" && "+has("1234 events are stored in cdc_relay_spool"))
	for _, width := range []int64{1440, 390} {
		b.screen(width, "light")
		b.wantFits(fmt.Sprintf("with spooled events at %d", width))
		b.wantNothingCut(fmt.Sprintf("with spooled events at %d", width))
	}
}

// Breaks it catches: a login that says nothing about a wrong token (seen to fail without the words), a right one that
// does not let in, raw JSON for a person whose address serves no console.
func TestConsoleLogin(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openTab(t)
	b.screen(900, "light")
	b.fine = "status of 40" // this test is about 401 and 403
	shut := s.door(web.Config{Address: "0.0.0.0:0"})
	b.do("open an address without a token", chromedp.Navigate(shut.url+"/"))
	b.wait("it says what to do", has("http.token_file")+` && document.querySelector("h1") !== null`)
	b.picture("no-token")
	d := s.door(web.Config{Address: "0.0.0.0:0", TokenFile: tokenFile})
	b.do("open the console", chromedp.Navigate(d.url+"/"))
	b.wait("it asks for the token, which has the focus and cannot be read", has("This relay needs its token")+
		` && document.activeElement.id === "ask-token" && document.activeElement.type === "password"`)
	b.fill("#ask-name", "ann")
	b.fill("#ask-token", "wrong")
	b.do("log in", chromedp.KeyEvent("\r"))
	b.wait("it says that the token is wrong", has("the token is missing or wrong"))
	b.picture("wrong-token")
	b.fill("#ask-token", planted)
	b.do("log in", chromedp.KeyEvent("\r"))
	b.wait("it shows the relay",
		`document.getElementById("role").textContent === "active" && document.querySelector("dialog") === null`)
	b.do("leave, before the listener ends", chromedp.Navigate("about:blank"))
}
