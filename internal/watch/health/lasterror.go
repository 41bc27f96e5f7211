package health

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// errorKind says what a lastError was about, and so when it is over.
type errorKind string

const (
	sessionError errorKind = "session" // a halt, or a stream that ended: over when a session runs again
	writeError   errorKind = "write"   // of outcomes: over when the write succeeds
	markError    errorKind = "mark"    // of rows
	sinkError    errorKind = "sink"    // a broker, topic or partition in trouble: over when all are well
	deadError    errorKind = "dead"    // an event that died: it stays dead

	registryError errorKind = "registry" // of schemas: over when it answers
)

// lastError is the newest error of any kind.
type lastError struct {
	kind errorKind
	what string // of a write: which
	text string
	at   time.Time
}

// erred notes the newest error. The caller holds mu.
func (h *State) erred(kind errorKind, what, text string) {
	h.latest = lastError{kind: kind, what: what, text: text, at: time.Now()}
}

// Died notes an event that became a dead letter.
func (h *State) Died(topic string, reason *sink.Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.erred(deadError, "",
		fmt.Sprintf("an event for topic %s became a dead letter (%s): %s", topic, reason.Code, reason.Text))
}

// SinkTrouble notes what the sink waits for, or with "" that it waits for nothing.
func (h *State) SinkTrouble(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sinkSick = text != ""; h.sinkSick {
		h.erred(sinkError, "", text)
	}
}

// isOver reports whether what the newest error was about is well again. The caller holds mu.
func (h *State) isOver() bool {
	switch h.latest.kind {
	case sessionError:
		return h.now == Active || h.now == Standby || h.now == CatchUp
	case writeError:
		_, still := h.writes[h.latest.what]
		return !still
	case markError:
		return h.marking.text == ""
	case registryError:
		return h.schemas.text == ""
	case sinkError:
		return !h.sinkSick
	}
	return false
}
