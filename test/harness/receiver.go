package harness

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Delivery is a POST as the receiver got it.
type Delivery struct {
	Path   string
	Header http.Header
	Body   []byte
	At     time.Time
}

// Receiver is a server of webhooks. It keeps what it answers with 2xx, also over a restart, as one with a database
// does.
type Receiver struct {
	Addr string // host:port

	// answer decides on a delivery; nil: 204 for each. It is called from many goroutines.
	answer func(http.ResponseWriter, Delivery)
	server *http.Server // the present one

	mu       sync.Mutex // guards what follows
	kept     []Delivery
	out      map[string]int // requests that are being answered, by path and key
	overlaps int
}

// NewReceiver starts a receiver, which ends with the test. Answer writes the answer to a delivery; nil: 204 for each.
func NewReceiver(t testing.TB, answer func(http.ResponseWriter, Delivery)) *Receiver {
	t.Helper()
	r := &Receiver{Addr: "127.0.0.1:0", answer: answer, out: map[string]int{}}
	r.Start(t)
	t.Cleanup(r.Kill)
	return r
}

// Start listens again on the same address.
func (r *Receiver) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	r.Addr = l.Addr().String()
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	r.server = server
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve webhooks: %v", err)
		}
	}()
}

// Kill closes the listener and every connection, whatever is on its way.
func (r *Receiver) Kill() { _ = r.server.Close() }

// noted is an answer with a known status.
type noted struct {
	http.ResponseWriter
	status int
}

func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

// ServeHTTP implements [http.Handler].
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	d := Delivery{Path: q.URL.Path, Header: q.Header, At: time.Now()}
	lane := d.Path + " " + d.Header.Get("X-Outbox-Key")
	r.enter(lane, 1)
	defer r.enter(lane, -1)
	var err error
	if d.Body, err = io.ReadAll(q.Body); err != nil {
		return // the sender broke off
	}
	n := &noted{ResponseWriter: w, status: http.StatusNoContent}
	if r.answer != nil {
		r.answer(n, d)
	} else {
		w.WriteHeader(n.status)
	}
	if n.status <= 299 && q.Method == http.MethodPost { // before the answer leaves, which is when this returns
		r.mu.Lock()
		r.kept = append(r.kept, d)
		r.mu.Unlock()
	}
}

// enter counts the requests of a key that are out.
func (r *Receiver) enter(lane string, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out[lane] += by
	if by > 0 && r.out[lane] > 1 {
		r.overlaps++
	}
}

// Deliveries returns the accepted requests so far, in order; of one path, or with "" of all.
func (r *Receiver) Deliveries(path string) (found []Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.kept {
		if path == "" || d.Path == path {
			found = append(found, d)
		}
	}
	return found
}

// Overlaps is how many requests came while another of the same key was being answered.
func (r *Receiver) Overlaps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.overlaps
}
