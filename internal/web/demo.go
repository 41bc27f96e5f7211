package web

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// Demo holds the additions of the demo to its console. A relay has none of it: without one, the page loads no such
// script, and the paths are unknown.
type Demo struct {
	Script []byte     // a module that the page loads
	Show   func() any // answers GET /api/v1/demo
	// Break takes POST /api/v1/demo/break; its error says why not now. Begin is called when the answer is sent, since
	// it may kill this process.
	Break func(name string) (begin func(), err error)
}

const demoScript = "/console/demo.js"

// register serves what the demo adds.
func (d Demo) register(mux *http.ServeMux, g guard) {
	mux.HandleFunc("GET "+demoScript, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(d.Script) // the client is gone: no one to tell
	})
	mux.HandleFunc("GET /api/v1/demo", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, d.Show())
	})
	mux.HandleFunc("POST /api/v1/demo/break", func(w http.ResponseWriter, req *http.Request) {
		if code, err := g.mayBreak(req); err != nil {
			g.refuse(w, req, code, err)
			return
		}
		var body struct {
			Incident string `json:"incident"`
		}
		if !readJSON(w, req, &body) {
			return
		}
		begin, err := d.Break(body.Incident)
		if err != nil {
			fail(w, http.StatusConflict, err)
			return
		}
		// With its length, it is complete when it is flushed.
		const accepted = "{}\n"
		w.Header().Set("Content-Length", strconv.Itoa(len(accepted)))
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, accepted)
		_ = http.NewResponseController(w).Flush()
		begin()
	})
}

// mayBreak is mayChange for the demo, which usually has no token. What it breaks are its own throw-away servers, so
// without one whoever may read can, which is this machine alone, and a page of this origin.
func (g guard) mayBreak(req *http.Request) (code int, err error) {
	if g.c.TokenFile != "" {
		_, code, err = g.mayChange(req)
		return code, err
	}
	if !saysOrigin(req) {
		return http.StatusForbidden, errors.New("want the header Origin, which browsers send: its value is this address")
	}
	return 0, nil
}
