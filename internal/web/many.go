package web

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/internal/web/console"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/internal/web/handbook"
	"github.com/cdc-relay/cdc-relay/relay"
)

// listedReasons bounds what /readyz lists: it is for anyone.
const listedReasons = 100

// Many serves several relays on one listener. Paths that concern one relay name it: /readyz?relay=NAME. Without a name,
// metrics, health, the status and the console's first page are about all of them. Any goroutine may call its methods.
type Many struct {
	server   *Server
	service  string // label of relays that could not be made
	version  string
	started  time.Time
	registry *prometheus.Registry // of the process, and of all relays with the label relay

	mu      sync.Mutex
	members map[string]*member              // guarded by mu
	removed map[string]prometheus.Collector // when, of those that are gone; guarded by mu
	closed  bool                            // guarded by mu
}

// member is one relay: it runs, or it is said why not. A new one takes its place when that changes, but for outdated,
// which Many.mu guards.
type member struct {
	relay    *relay.Relay // nil: it does not run
	live     live
	endLive  func()
	paths    http.Handler
	halted   relay.Status // without a relay
	service  string       // label of its metrics; without a relay that of the former one
	gauges   prometheus.Collector
	outdated string // why it runs with the former content of its file
}

// Many returns a Many, which begins to serve at Open. Relays that could not be made have service as their label.
func (s *Server) Many(service, version string) *Many {
	m := &Many{server: s, service: service, version: version, started: time.Now(), registry: prometheus.NewRegistry(),
		members: map[string]*member{}, removed: map[string]prometheus.Collector{}}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.endLive = m.end
	return m
}

// Open begins to serve. Call it once, when each of the first relays has been added or reported as halted.
func (m *Many) Open() { m.server.answer(m.handler()) }

// Registerer returns where the named relay registers its metrics.
func (m *Many) Registerer(name string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"relay": name}, m.registry)
}

// Serve serves the relay under the name from now on. The desk may be nil; the caller closes it after Leave.
func (m *Many) Serve(name string, r *relay.Relay, desk *consumers.Desk) {
	g := m.server.guard
	g.c.Inbox = desk
	g.c.Logger = g.c.Logger.With().Str("relay", name).Logger()
	of := &member{relay: r, service: r.Status().Service}
	of.live, of.endLive = newLive(r)
	of.paths = paths(g, r, of.live)
	m.replace(name, of)
}

// Waits reports what the named relay waits for before it can be made.
func (m *Many) Waits(name, reason string) { m.replace(name, m.without("", reason, "")) }

// Leave stops serving the named relay, which has stopped; until the next report it is shown as starting.
func (m *Many) Leave(name string) {
	m.Waits(name, "the relay has stopped, and has not been started again yet")
}

// Halted reports why the named relay does not run, and what to do.
func (m *Many) Halted(name, reason, remedy string) {
	m.mu.Lock()
	now := m.members[name]
	same := now != nil && now.relay == nil && now.halted.Halt != nil && now.halted.Halt.Reason == reason
	m.mu.Unlock()
	if !same {
		m.replace(name, m.without(halt.Configuration, reason, remedy))
	}
}

// Outdated reports why the relay runs with the former content of its file, or "" if it does not.
func (m *Many) Outdated(name, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.members[name]; of != nil {
		of.outdated = why
	}
}

// Concerns returns what Outdated last reported about the named relay.
func (m *Many) Concerns(name string) []relay.Degradation {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.members[name]
	if of == nil || of.outdated == "" {
		return nil
	}
	return []relay.Degradation{{Reason: relay.DegradedConfiguration,
		Text: "the file of this relay has changed, and the relay runs with its former content: " + of.outdated}}
}

// Gone forgets the named relay.
func (m *Many) Gone(name string) { m.replace(name, nil) }

// without returns a member for a relay that does not run: halted if there is a code, else starting.
func (m *Many) without(code, reason, remedy string) *member {
	st := relay.Status{Service: m.service, Version: m.version, Started: m.started, Since: time.Now(),
		Role: relay.RoleStarting, Reasons: []string{reason}, Degraded: []relay.Degradation{}}
	if code != "" {
		st.Role = relay.RoleHalted
		st.Reasons = []string{"halted (" + code + "): " + reason}
		st.Halt = &relay.HaltStatus{Code: code, Reason: reason, Risk: halt.RiskWAL, Remedy: remedy,
			Runbook: "/docs/runbooks/" + code}
	}
	st.State = string(st.Role)
	return &member{halted: st, service: m.service}
}

// replace puts a member in the place of the named one; nil removes it.
func (m *Many) replace(name string, of *member) {
	ended := m.swap(name, of)
	if ended != nil && ended.endLive != nil {
		ended.endLive() // which may wait for who asks for Concerns
	}
}

// swap returns the member that is no longer served; nil if there is none.
func (m *Many) swap(name string, of *member) (ended *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed && of != nil {
		return of
	}
	was := m.members[name]
	if was != nil && was.gauges != nil {
		m.registry.Unregister(was.gauges)
	}
	if removed := m.removed[name]; removed != nil {
		m.registry.Unregister(removed)
		delete(m.removed, name)
	}
	if of == nil {
		delete(m.members, name)
		if was != nil && !m.closed {
			m.removed[name] = meter.Removed(labels(name, was.service), time.Now())
			_ = m.registry.Register(m.removed[name])
		}
		return was
	}
	if was != nil && of.relay == nil {
		of.service, of.halted.Service = was.service, was.service
	}
	m.members[name] = of
	if of.halted.Halt != nil {
		of.gauges = meter.Halted(labels(name, of.service), of.halted.Halt.Code)
		_ = m.registry.Register(of.gauges)
	}
	return was
}

// labels returns the labels of a relay that does not run. Names that differ only in bytes that are not UTF-8 get the
// same labels, and only one of them is shown.
func labels(name, service string) prometheus.Labels {
	return prometheus.Labels{"relay": strings.ToValidUTF8(name, "?"), "service": service}
}

// end stops serving all relays.
func (m *Many) end() {
	m.mu.Lock()
	m.closed = true
	names := slices.Collect(maps.Keys(m.members))
	m.mu.Unlock()
	for _, name := range names {
		m.replace(name, nil)
	}
}

// Named is the status of one of several relays.
type Named struct {
	Relay string `json:"relay"` // the name of its file, without .yaml
	relay.Status
}

// statuses returns the status of every relay, by name.
func (m *Many) statuses() []Named {
	m.mu.Lock()
	members := maps.Clone(m.members)
	m.mu.Unlock()
	all := []Named{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		all = append(all, Named{name, members[name].status()})
	}
	return all
}

func (of *member) status() relay.Status {
	if of.relay == nil {
		return of.halted
	}
	return of.live.status()
}

// handler answers the paths of all relays, and by the parameter relay those of one.
func (m *Many) handler() http.Handler {
	all := http.NewServeMux()
	console.RegisterMany(all)
	handbook.Register(all)
	sessions{m.server.guard}.register(all)
	all.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	all.HandleFunc("GET /livez", m.tellLive)
	for _, path := range readyPaths {
		all.HandleFunc("GET "+path, m.tellReady)
	}
	all.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"items": m.statuses()})
	})
	all.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusBadRequest, errors.New("this process runs several relays: name one by the parameter relay, "+
			"as in /api/v1/dlq?relay=NAME; /api/v1/status lists them"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		values := req.URL.Query()
		if !values.Has("relay") {
			all.ServeHTTP(w, req)
			return
		}
		name := values.Get("relay")
		values.Del("relay")
		rest := req.Clone(req.Context())
		rest.URL.RawQuery = values.Encode()
		m.one(w, rest, name)
	})
}

// one answers requests about the named relay.
func (m *Many) one(w http.ResponseWriter, req *http.Request, name string) {
	m.mu.Lock()
	of := m.members[name]
	m.mu.Unlock()
	switch {
	case of == nil:
		fail(w, http.StatusNotFound, fmt.Errorf("no relay %.100q runs in this process; /api/v1/status lists them", name))
	case req.URL.Path == "/api/v1/status":
		answer(w, http.StatusOK, Named{name, of.status()})
	case of.relay != nil:
		of.paths.ServeHTTP(w, req)
	case slices.Contains(readyPaths, req.URL.Path):
		tellReady(w, req, of.halted)
	case req.URL.Path == "/livez":
		answer(w, http.StatusOK, map[string]any{"live": true, "reasons": []string{}})
	default:
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("relay %.100q does not run: %s", name, of.halted.Reasons[0]))
	}
}

// tellLive answers /livez: it fails if a loop of any relay is stuck, which a restart of the process cures.
func (m *Many) tellLive(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	members := maps.Clone(m.members)
	m.mu.Unlock()
	reasons := []string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if r := members[name].relay; r != nil {
			_, whys := r.Live()
			for _, why := range whys {
				reasons = append(reasons, name+": "+why)
			}
		}
	}
	answer(w, statusCode(len(reasons) == 0), map[string]any{"live": len(reasons) == 0, "reasons": reasons})
}

// tellReady answers /readyz: ready while at least one relay is, or there is none. Trouble of some relays degrades the
// process and no more, since taking it out of service would stop the others, too.
func (m *Many) tellReady(w http.ResponseWriter, req *http.Request) {
	statuses := m.statuses()
	reasons, degraded, ready := []string{}, []relay.Degradation{}, 0
	for _, st := range statuses {
		if st.Ready {
			ready++
		}
		for _, why := range st.Reasons {
			reasons = append(reasons, st.Relay+": "+why)
		}
		for _, d := range st.Degraded {
			degraded = append(degraded, relay.Degradation{Reason: d.Reason, Text: st.Relay + ": " + d.Text})
		}
	}
	isReady := ready > 0 || len(statuses) == 0
	if more := len(reasons) - listedReasons; more > 0 {
		reasons = append(reasons[:listedReasons], fmt.Sprintf("%d more; /api/v1/status has them all", more))
	}
	ok := isReady && (len(reasons)+len(degraded) == 0 || !req.URL.Query().Has("degraded"))
	answer(w, statusCode(ok), map[string]any{"ready": isReady, "relays": len(statuses), "relays_ready": ready,
		"reasons": reasons, "degraded": degraded})
}
