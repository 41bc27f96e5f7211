package web

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/web/history"
	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	mostStreams  = 16              // pages that are fed at once
	frameTimeout = 5 * time.Second // for a page to take a frame
)

const streamPath = "/api/v1/stream"

// live tells what happens: the last quarter of an hour, then every second. The console lives on it.
type live struct {
	r       *relay.Relay
	history *history.History
	ended   context.Context // when the server ends
	streams *atomic.Int32
}

// newLive begins to remember; close ends that, and the streams.
func newLive(r *relay.Relay) (l live, closeLive func()) {
	ended, end := context.WithCancel(context.Background())
	l = live{r: r, history: history.Start(r), ended: ended, streams: new(atomic.Int32)}
	return l, func() {
		end()
		l.history.Stop()
	}
}

// frame is one second's data. Names are stable.
type frame struct {
	Status       relay.Status    `json:"status"`
	Point        *history.Point  `json:"point"` // null in the first second
	Topics       []history.Topic `json:"topics"`
	OtherTopics  int             `json:"other_topics"`
	Slot         *relay.SlotLook `json:"slot"` // null when it was not seen lately
	WindowEvents int             `json:"window_events"`
	WindowBytes  int             `json:"window_bytes"`
	Noted        int64           `json:"noted"` // the number of the newest note
}

func (l live) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/history", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"interval_seconds": history.Interval.Seconds(), "points": l.history.All()})
	})
	mux.HandleFunc("GET /api/v1/notes", func(w http.ResponseWriter, _ *http.Request) {
		notes, newest := l.r.Notes()
		answer(w, http.StatusOK, map[string]any{"items": notes, "newest": newest})
	})
	mux.HandleFunc("GET /api/v1/config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"items": l.r.Settings()})
	})
	mux.HandleFunc("GET "+streamPath, l.stream)
}

// ratesOver is how many of the latest points the rates of a status are the mean of.
const ratesOver = 10

// status is the relay's, with rates.
func (l live) status() relay.Status {
	st := l.r.Status()
	if st.Role != relay.RoleStandby { // which has no events
		st.Rates = l.history.Rates(ratesOver)
	}
	return st
}

func (l live) frame() frame {
	f := frame{
		Status: l.status(), Slot: l.r.Slot(), Noted: l.r.Noted(),
	}
	if p, some := l.history.Last(); some {
		f.Point = &p
	}
	f.Topics, f.OtherTopics = l.history.Topics()
	f.WindowEvents, f.WindowBytes = l.r.Window()
	return f
}

// stream sends a frame a second as server-sent events, until the page or the server goes away.
func (l live) stream(w http.ResponseWriter, req *http.Request) {
	if l.streams.Add(1) > mostStreams {
		l.streams.Add(-1)
		answer(w, http.StatusServiceUnavailable, map[string]any{"error": "too many pages are open on this relay; close one"})
		return
	}
	defer l.streams.Add(-1)
	keepConnection(req.Context())
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if req.Method == http.MethodHead { // the connection is the next request's as soon as the headers are there
		return
	}
	control := http.NewResponseController(w)
	ticker := time.NewTicker(history.Interval)
	defer ticker.Stop()
	for {
		text, err := json.Marshal(l.frame())
		if err != nil || control.SetWriteDeadline(time.Now().Add(frameTimeout)) != nil {
			return
		}
		if _, err := w.Write([]byte("event: frame\ndata: " + string(text) + "\n\n")); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-req.Context().Done():
			return
		case <-l.ended.Done():
			return
		}
	}
}
