package health

import "time"

// leadership is for how long this process is the one that relays, as far as it knows: from a catch-up or a stream of
// its own until another relay is seen to hold the slot. Neither a halt nor an absence of Postgres ends it: no one
// knows better then.
type leadership struct {
	on       bool
	streamed time.Time // when the first stream of it began; zero before
}

// Took begins the leadership, if it has not begun, in a role in which events flow.
func (h *State) Took(role Role) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(role)
}

// take is Took. The caller holds mu.
func (h *State) take(role Role) {
	switch role {
	case CatchUp:
		h.leading.on = true
	case Active:
		h.leading.on = true
		if h.leading.streamed.IsZero() {
			h.leading.streamed = time.Now()
		}
	}
}

// Leads reports whether this process is the one that relays, as far as it knows, and since when it has streamed as
// such.
func (h *State) Leads() (on bool, streamed time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leading.on, h.leading.streamed
}

// Dismiss ends the leadership: another relay has had the slot.
func (h *State) Dismiss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leading = leadership{}
}
