package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Anyone who reaches the listener can ask for any amount, and each answer costs CPU that events need. So each
// kind of request has a few turns, and a turn rests after it was used: a flood of one kind gets a share of one core,
// waits for it, and keeps no other kind waiting. Probes are a kind of their own. An answer is made in memory, within a
// turn, and sent after it: a client that does not read keeps its own connection busy and nothing else.
const (
	turnPatience           = time.Second // how long a request waits for its turn
	leastRest, longestRest = 5 * time.Millisecond, 200 * time.Millisecond
	mostUnsent             = 32 << 20 // bytes of answers in memory at once; what comes beyond is refused
)

// kind is one of the kinds of requests.
type kind struct {
	turns chan struct{}
	rests int // how many times as long as it was used a turn rests
}

func newKind(turns, rests int) kind { return kind{make(chan struct{}, turns), rests} }

// do calls f within a turn, and reports whether it came.
func (k kind) do(ctx context.Context, f func()) bool {
	timer := time.NewTimer(turnPatience)
	defer timer.Stop()
	select {
	case k.turns <- struct{}{}:
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
	began := time.Now()
	defer func() {
		rest := min(max(time.Since(began)*time.Duration(k.rests), leastRest), longestRest)
		time.AfterFunc(rest, func() { <-k.turns })
	}()
	f()
	return true
}

// limits are those of one listener.
type limits struct {
	probes, metrics, pages, api kind
	unsent                      atomic.Int64 // bytes
}

func newLimits() *limits {
	return &limits{probes: newKind(4, 10), metrics: newKind(1, 4), pages: newKind(2, 10), api: newKind(8, 4)}
}

func (l *limits) kindOf(path string) kind {
	switch {
	case path == "/metrics":
		return l.metrics
	case isOpen(path) && !isPage(path):
		return l.probes
	case strings.HasPrefix(path, "/api/"):
		return l.api
	}
	return l.pages
}

var errBusy = errors.New("too many requests at once: try again")

// wrap gives each request its turn. A stream of frames has its own bound, and is sent as it is made.
func (l *limits) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == streamPath {
			if l.api.do(req.Context(), func() {}) {
				next.ServeHTTP(w, req)
			}
			return
		}
		a := unsent{header: http.Header{}, code: http.StatusOK}
		if l.unsent.Load() > mostUnsent || !l.kindOf(req.URL.Path).do(req.Context(), func() { next.ServeHTTP(&a, req) }) {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			fail(w, http.StatusServiceUnavailable, errBusy)
			return
		}
		l.unsent.Add(int64(a.body.Len()))
		defer l.unsent.Add(-int64(a.body.Len()))
		header := w.Header()
		for name, values := range a.header {
			header[name] = values
		}
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body.Bytes()) // the client is gone: no one to tell
	})
}

// unsent is an answer that is being made.
type unsent struct {
	header http.Header
	code   int
	wrote  bool
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *unsent) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *unsent) WriteHeader(code int) {
	if !a.wrote {
		a.code, a.wrote = code, true
	}
}

// Write implements http.ResponseWriter.
func (a *unsent) Write(p []byte) (int, error) {
	a.wrote = true
	return a.body.Write(p)
}
