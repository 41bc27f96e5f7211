package web_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// way leads to an address; it can be blocked, so that nothing comes through and nothing ends, and closed.
type way struct {
	listener net.Listener

	mu      sync.Mutex // held while it is blocked
	conns   []net.Conn
	running sync.WaitGroup
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{listener: listener}
	w.running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			target, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, from, target)
			w.mu.Unlock()
			w.running.Go(func() { w.copy(from, target) })
			w.running.Go(func() { w.copy(target, from) })
		}
	})
	t.Cleanup(w.close)
	return w
}

func (w *way) copy(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		_, err = to.Write(buffer[:n])
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *way) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// Breaks it catches: a console that stays green over a relay that is dead or frozen; one that stays grey when the relay
// answers again.
func TestConsoleShowsThatTheRelayDoesNotAnswer(t *testing.T) {
	s, run := newSite(t)
	run()
	s.wantReady(http.StatusOK, "")
	path := newWay(t, s.url[len("http://"):])
	b := openTab(t)
	b.screen(1440, "light")
	b.fine = "net::ERR_" // what this test is about
	b.do("open the console", chromedp.Navigate("http://"+path.listener.Addr().String()+"/"))
	const (
		green = `document.getElementById("role").dataset.tone === "good" && !document.title.startsWith("No answer") &&
			!document.body.innerText.includes("No answer from the relay") &&
			document.documentElement.dataset.late === undefined &&
			getComputedStyle(document.querySelector("main")).filter === "none"`
		late = `document.getElementById("role").dataset.tone === "bad" &&
			document.getElementById("role").textContent.startsWith("no answer since ") &&
			document.title === "No answer · Overview · cdc-relay" &&
			document.body.innerText.includes("No answer from the relay since ") &&
			getComputedStyle(document.querySelector("main")).filter === "grayscale(1)"`
	)
	b.wait("it is green", green)
	path.mu.Lock()
	b.wait("it says that a frozen relay does not answer", late)
	for _, width := range []int64{1440, 390} {
		b.screen(width, "light")
		b.wantFits(fmt.Sprintf("without an answer at %d", width))
		b.picture(fmt.Sprintf("no-answer-%d", width))
	}
	path.mu.Unlock()
	b.wait("it is green again", green)
	path.close()
	b.wait("it says that a dead relay does not answer", late)
}
