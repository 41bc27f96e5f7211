package relay

import (
	"regexp"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
)

// Role is what the process is doing, as a whole.
type Role string

// The roles.
const (
	RoleStarting Role = "starting"
	RoleStandby  Role = "standby" // another relay holds the slot
	RoleCatchUp  Role = "catch_up"
	RoleActive   Role = "active"
	RoleHalted   Role = "halted"
	RoleStopping Role = "stopping"
)

// roles are all of them, by name.
var roles = []string{
	string(RoleStarting), string(RoleStandby), string(RoleCatchUp), string(RoleActive), string(RoleHalted), string(RoleStopping),
}

// repeatEvery is how often a trouble that stays is said again in the log.
const repeatEvery = 30 * time.Second

// health remembers what an operator must know. Its methods that begin with a verb of trouble say whether it is news,
// so that a repeated error is logged once in a while and not at every attempt.
type health struct {
	mu       sync.Mutex
	now      Role
	since    time.Time
	halted   *halt.Error
	kept     Role // shows again when the breaker's halt is lifted; see keep
	tenure   tenure
	last     trouble            // the newest trouble of a session
	latest   lastError          // of any kind
	writes   map[string]trouble // what cannot be recorded at present, by kind of write
	marking  trouble
	sinkSick bool   // something that the sink waits for, when it was looked at last
	missed   int    // rows that the last reconcile rounds found, since the last clean one
	notes    []Note // the oldest first, at most notesKept
	noted    int64  // how many there were
}

type trouble struct {
	text   string
	at     time.Time
	said   time.Time
	unsaid int // times since then
}

// news says whether the error is to be said, and how often the same was not since it was. Errors that differ in numbers only
// are the same: each attempt has another port.
func (t *trouble) news(err error) (isNew bool, unsaid int) {
	now := time.Now()
	isNew = digits.ReplaceAllString(t.text, "0") != digits.ReplaceAllString(err.Error(), "0") || now.Sub(t.said) > repeatEvery
	t.text, t.at = err.Error(), now
	if !isNew {
		t.unsaid++
		return false, 0
	}
	unsaid, t.unsaid, t.said = t.unsaid, 0, now
	return true, unsaid
}

var digits = regexp.MustCompile(`[0-9]+`)

// enter changes the role and says whether it is a change.
func (h *health) enter(role Role) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if role != RoleHalted {
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

func (h *health) role() Role {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *health) halt(why *halt.Error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, _ = h.last.news(why)
	h.erred(sessionError, "", why.Error())
	h.halted = why
	h.note("halt", why.Code, why.Reason)
	if h.now != RoleHalted {
		h.now, h.since = RoleHalted, time.Now()
	}
	return news
}

// keepRole keeps the role as the one that shows again when a halt is lifted.
func (h *health) keepRole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = h.now
}

// keep is enter for a role that shows when the halt of now is lifted.
func (h *health) keep(role Role) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = role
	h.take(role)
}

// enterKept enters the role that was kept.
func (h *health) enterKept() {
	h.mu.Lock()
	kept := h.kept
	h.mu.Unlock()
	h.enter(kept)
}

// haltedBy says that it is this halt that the process is in.
func (h *health) haltedBy(why *halt.Error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.halted == why
}

// haltCode is the code of the halt, empty while there is none.
func (h *health) haltCode() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.halted == nil {
		return ""
	}
	return h.halted.Code
}

// trouble is the end of a session that will be tried again. It says whether that is news, and how often the same was not
// said since it was.
func (h *health) trouble(reason string, err error) (news bool, unsaid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, unsaid = h.last.news(err)
	h.erred(sessionError, "", err.Error())
	h.note("restart", reason, err.Error())
	h.halted = nil
	if h.now != RoleStarting {
		h.now, h.since = RoleStarting, time.Now()
	}
	return news, unsaid
}

func (h *health) settled(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writes, what)
}

func (h *health) settleTrouble(what string, err error) (news bool) {
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

// forget drops the troubles of writes that are given up.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = nil
}

// reconciled notes rows that the stream has missed, and with 0 that a round found none.
func (h *health) reconciled(missed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.missed += missed; missed == 0 {
		h.missed = 0
	}
}

func (h *health) mirrored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marking = trouble{}
}

func (h *health) mirrorTrouble(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, _ = h.marking.news(err)
	h.erred(markError, "", "cannot mark rows as published: "+err.Error())
	return news
}
