// Package health remembers what an operator must know of a relay: its role, its halt, what it cannot do at present,
// the newest error, and the latest changes of all that. It decides nothing and logs nothing: who tells it of a trouble
// learns whether that is news, so that a repeated error is logged once in a while and not at every attempt.
//
// Tested in health_test.go, by what it remembers.
package health

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
)

// Role is the role of the process.
type Role string

// The roles.
const (
	Starting Role = "starting"
	Standby  Role = "standby" // another relay holds the slot
	CatchUp  Role = "catch_up"
	Active   Role = "active"
	Halted   Role = "halted"
	Stopping Role = "stopping"
)

// Roles are all of them, by name.
var Roles = []string{
	string(Starting), string(Standby), string(CatchUp), string(Active), string(Halted), string(Stopping),
}

// repeatEvery is how often a trouble that stays is said again in the log.
const repeatEvery = 30 * time.Second

// State is the current health. The zero value is that of a relay that has not started. Any goroutine may use it.
type State struct {
	mu       sync.Mutex // guards all that follows; nothing else is locked while it is held
	now      Role
	since    time.Time
	halted   *halt.Error
	kept     Role // shows again when the breaker's halt is lifted; see Keep
	leading  leadership
	last     trouble            // the newest trouble of a session
	latest   lastError          // of any kind
	writes   map[string]trouble // what cannot be recorded at present, by kind of write
	marking  trouble
	schemas  trouble // why the schema registry, which events wait for, cannot be asked
	sinkSick bool    // something that the sink waits for, when it was looked at last
	missed   int     // rows that the last reconcile rounds found, since the last clean one
	notes    []Note  // the oldest first, at most notesKept
	noted    int64   // how many there were
}

type trouble struct {
	text   string
	at     time.Time
	said   time.Time
	unsaid int // times since then

	attempt int       // of a session: how many failed in a row
	next    time.Time // of a session: when it is tried again
}

// news reports whether the error is to be said, and how often the same was not since it was. Errors that differ in
// numbers only are the same: each attempt has another port.
func (t *trouble) news(err error) (isNew bool, unsaid int) {
	now := time.Now()
	isNew = digits.ReplaceAllString(t.text, "0") != digits.ReplaceAllString(err.Error(), "0") ||
		now.Sub(t.said) > repeatEvery
	t.text, t.at = err.Error(), now
	if !isNew {
		t.unsaid++
		return false, 0
	}
	unsaid, t.unsaid, t.said = t.unsaid, 0, now
	return true, unsaid
}

// tried says how often a session was tried, and when it is again.
func (t *trouble) tried() string {
	if t.attempt == 0 {
		return ""
	}
	if in := time.Until(t.next).Round(time.Second); in > 0 {
		return fmt.Sprintf("; attempt %d failed, the next is in %v", t.attempt, in)
	}
	return fmt.Sprintf("; attempt %d failed, the next is on its way", t.attempt)
}

var digits = regexp.MustCompile(`[0-9]+`)

// Enter changes the role and says whether it is a change.
func (h *State) Enter(role Role) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if role != Halted {
		h.halted = nil
	}
	h.take(role)
	if h.now == role {
		return false
	}
	h.now, h.since = role, time.Now()
	h.note("role", string(role), "")
	return true
}

// Role returns the relay's current role.
func (h *State) Role() Role {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Halt notes why the relay halts, and reports whether that is news.
func (h *State) Halt(why *halt.Error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, _ = h.last.news(why)
	h.erred(sessionError, "", why.Error())
	h.halted = why
	h.note("halt", why.Code, why.Reason)
	if h.now != Halted {
		h.now, h.since = Halted, time.Now()
	}
	return news
}

// KeepRole keeps the role as the one that shows again when a halt is lifted.
func (h *State) KeepRole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = h.now
}

// Keep is enter for a role that shows when the halt of now is lifted.
func (h *State) Keep(role Role) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = role
	h.take(role)
}

// EnterKept enters the role that was kept.
func (h *State) EnterKept() {
	h.mu.Lock()
	kept := h.kept
	h.mu.Unlock()
	h.Enter(kept)
}

// HaltedBy reports that it is this halt that the process is in.
func (h *State) HaltedBy(why *halt.Error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.halted == why
}

// HaltCode is the code of the halt, empty while there is none.
func (h *State) HaltCode() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.halted == nil {
		return ""
	}
	return h.halted.Code
}

// Trouble is the end of a session, the attempt-th in a row, that will be tried again after the pause. It
// says whether that is news, and how often the same was not said since it was.
func (h *State) Trouble(reason string, err error, attempt int, pause time.Duration) (news bool, unsaid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, unsaid = h.last.news(err)
	h.last.attempt, h.last.next = attempt, time.Now().Add(pause)
	h.erred(sessionError, "", err.Error())
	h.note("restart", reason, err.Error())
	h.halted = nil
	if h.now != Starting {
		h.now, h.since = Starting, time.Now()
	}
	return news, unsaid
}

// Recorded notes that a kind of write succeeded.
func (h *State) Recorded(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writes, what)
}

// CannotRecord notes why a kind of write fails, and reports whether that is news.
func (h *State) CannotRecord(what string, err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.writes == nil {
		h.writes = map[string]trouble{}
	}
	t := h.writes[what]
	news, _ = t.news(err)
	h.writes[what] = t
	h.erred(writeError, what, "cannot record outcomes ("+what+"): "+err.Error())
	return news
}

// Forget drops the troubles of writes that are given up.
func (h *State) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = nil
}

// Reconciled notes rows that the stream has missed, and with 0 that a round found none.
func (h *State) Reconciled(missed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.missed += missed; missed == 0 {
		h.missed = 0
	}
}

// Marked notes that rows could be marked.
func (h *State) Marked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marking = trouble{}
}

// MarkTrouble is why rows cannot be marked at present; empty while they can.
func (h *State) MarkTrouble() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.marking.text
}

// CannotMark notes why rows cannot be marked, and reports whether that is news.
func (h *State) CannotMark(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, _ = h.marking.news(err)
	h.erred(markError, "", "cannot mark rows as published: "+err.Error())
	return news
}

// Registry notes why the schema registry cannot be asked, nil: it can, and reports whether that is news.
func (h *State) Registry(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		news, h.schemas = h.schemas.text != "", trouble{}
		return news
	}
	news, _ = h.schemas.news(err)
	h.erred(registryError, "", "cannot ask the schema registry: "+err.Error())
	return news
}

// Report is the health as an operator sees it.
type Report struct {
	Role    Role
	Since   time.Time   // in which it is since then
	Halt    *halt.Error // nil: none
	Reasons []string    // why the relay is not ready, or what is wrong though it is

	LastError     string // the newest of any kind; "" before the first
	LastErrorAt   time.Time
	LastErrorOver bool // what it was about is well again
}

// Report returns the current health.
func (h *State) Report() (r Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Role, r.Since, r.Halt = h.now, h.since, h.halted
	if h.latest.text != "" {
		r.LastError, r.LastErrorAt, r.LastErrorOver = h.latest.text, h.latest.at, h.isOver()
	}
	switch {
	case h.halted != nil:
		r.Reasons = append(r.Reasons, "halted ("+h.halted.Code+"): "+h.halted.Reason)
	case h.now == Starting && h.last.text != "":
		r.Reasons = append(r.Reasons, "starting a session; last error: "+h.last.text+h.last.tried())
	case h.now == Starting, h.now == Stopping:
		r.Reasons = append(r.Reasons, string(h.now))
	case h.now == CatchUp:
		r.Reasons = append(r.Reasons,
			"catching up: publishing the rows that are older than the slot; the stream comes after them")
	}
	if h.missed > 0 && h.now == Active {
		r.Reasons = append(r.Reasons,
			fmt.Sprintf("reconciler not clean: %d committed rows were never delivered by the stream; "+
				"they are published late, and this ends with the next round that finds none", h.missed))
	}
	if h.schemas.text != "" {
		r.Reasons = append(r.Reasons, "waiting for the schema registry: "+h.schemas.text+
			"; events wait in order, without spending attempts")
	}
	for _, what := range slices.Sorted(maps.Keys(h.writes)) {
		r.Reasons = append(r.Reasons, "cannot record outcomes ("+what+"): "+h.writes[what].text)
	}
	return r
}
