// Package web serves what people and machines ask of a running relay over HTTP: metrics, health, its status, the
// console, and the pages that explain them. It reads what the relay says of itself and what is in its tables, and is
// not on the path of any event.
//
// Its tests ask it over HTTP, as people and machines do, and look at the console in a real browser.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/web/console"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/internal/web/handbook"
	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 10 * time.Second // a turn included
	maxHeader     = 16 << 10
	closeTimeout  = time.Second
)

// ReadOpen is the value of Config.Read that lets this machine read without the token.
const ReadOpen = "open"

// Config says where and what is served.
type Config struct {
	Address      string          // http.listen, such as 127.0.0.1:9464
	TokenFile    string          // http.token_file; empty: nothing can be changed
	Read         string          // http.read
	HidePayloads bool            // http.show_payloads: false
	Inbox        *consumers.Desk // nil: nothing is shown of consumers; its opener closes it
	Demo         *Demo           // nil but in the demo
	Logger       zerolog.Logger
}

// Server is one listener with everything on it.
type Server struct {
	WarnOfToken func() // logs a warning if the token can be guessed

	guard    guard
	http     *http.Server
	handler  atomic.Pointer[http.Handler]
	endLive  func() // nil before Serve
	listener net.Listener
	done     chan error
}

// Listen opens the address and serves the relay until Close.
func Listen(c Config, r *relay.Relay) (*Server, error) {
	s, err := Open(c)
	if err == nil {
		s.Serve(r)
	}
	return s, err
}

// Open opens the address. Until Serve there is no relay: it is alive, and not ready.
func Open(c Config) (*Server, error) {
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on http.listen = %s: %w; choose another address or stop what uses it", c.Address, err)
	}
	g := newGuard(c, listener.Addr())
	s := &Server{
		WarnOfToken: g.warnOfShort, guard: g,
		listener: listener, done: make(chan error, 1),
		http: &http.Server{
			ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout,
			WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
			ConnContext: withConnection,
			ErrorLog:    log.New(c.Logger.With().Str("logger", "http").Logger(), "", 0), // else standard error, which may block
		},
	}
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		(*s.handler.Load()).ServeHTTP(w, req)
	})
	s.Wait("the relay is starting")
	go func() { s.done <- s.http.Serve(newConnections(listener)) }()
	return s, nil
}

// Wait says why there is no relay yet.
func (s *Server) Wait(reason string) {
	h := newLimits().wrap(s.guard.wrap(waiting(reason)))
	s.handler.Store(&h)
}

// Serve serves the relay from now on. Call it once.
func (s *Server) Serve(r *relay.Relay) {
	live, endLive := newLive(r)
	s.endLive = endLive
	s.answer(paths(s.guard, r, live))
}

// answer has h answer from now on whom the limits and the guard let pass.
func (s *Server) answer(h http.Handler) {
	h = newLimits().wrap(s.guard.wrap(wellFormed(h)))
	s.handler.Store(&h)
}

// waiting answers probes before there is a relay: a restart would fix nothing.
func waiting(reason string) http.Handler {
	mux := http.NewServeMux()
	handbook.Register(mux)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"live": true, "reasons": []string{}})
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusServiceUnavailable, map[string]any{"ready": false, "role": relay.RoleStarting,
			"state": relay.RoleStarting, "reasons": []string{reason}, "degraded": []string{}, "error": reason})
	})
	return mux
}

// Address is where the server listens; useful when the port was 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close lets requests in progress finish for a second.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.endLive != nil {
		s.endLive()
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		return errors.Join(err, served)
	}
	return err
}

// paths answers the relay's paths.
func paths(g guard, r *relay.Relay, live live) http.Handler {
	mux := http.NewServeMux()
	if demo := g.c.Demo; demo != nil {
		console.Register(mux, demoScript)
		demo.register(mux, g)
	} else {
		console.Register(mux)
	}
	handbook.Register(mux)
	live.register(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.Registry(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		live, reasons := r.Live()
		answer(w, statusCode(live), map[string]any{"live": live, "reasons": reasons})
	})
	for _, path := range readyPaths {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, req *http.Request) { tellReady(w, req, r.Status()) })
	}
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, live.status())
	})
	lists{g.c, r, make(chan struct{}, readers)}.register(mux)
	changes{g, r}.register(mux)
	inbox{g}.register(mux)
	sessions{g}.register(mux)
	return mux
}

var readyPaths = []string{"/readyz", "/healthz", "/health"}

// tellReady answers whether the relay is ready. With ?degraded it is for alerts; without, for what routes and restarts,
// which could fix nothing.
func tellReady(w http.ResponseWriter, req *http.Request, st relay.Status) {
	ok := st.Ready && (len(st.Degraded) == 0 || !req.URL.Query().Has("degraded"))
	answer(w, statusCode(ok), map[string]any{
		"ready": st.Ready, "role": st.Role, "state": st.State, "reasons": st.Reasons, "degraded": st.Degraded,
	})
}

// wellFormed refuses addresses whose parameters cannot be read: what is dropped could be what the question was about.
func wellFormed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := url.ParseQuery(req.URL.RawQuery); err != nil {
			fail(w, http.StatusBadRequest, fmt.Errorf("read the parameters behind the question mark: %w", err))
			return
		}
		next.ServeHTTP(w, req)
	})
}

func statusCode(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func answer(w http.ResponseWriter, code int, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // and not half a body under a code that says that all is well
		code, text = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be encoded as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // the client is gone: no one to tell
}

// isLoopback reports whether only this machine reaches the address.
func isLoopback(a net.Addr) bool {
	tcp, is := a.(*net.TCPAddr)
	return is && tcp.IP.IsLoopback()
}
