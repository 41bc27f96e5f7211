package health

import (
	"slices"
	"time"
)

// notesKept is how many notes a process remembers.
const notesKept = 100

// Note is something that an operator may want to look back at. Names in JSON are stable.
type Note struct {
	Number int64     `json:"number"` // counts up
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // role, halt, restart
	Code   string    `json:"code"` // the role, the halt's code, the restart's reason
	Text   string    `json:"text"`
}

// note remembers it. The caller holds mu. The same again, one after another, is remembered once, as of the last time.
func (h *State) note(kind, code, text string) {
	h.noted++
	n := Note{Number: h.noted, At: time.Now(), Kind: kind, Code: code, Text: text}
	if last := len(h.notes) - 1; last >= 0 && h.notes[last].Kind == kind && h.notes[last].Code == code &&
		h.notes[last].Text == text {
		h.notes[last] = n
		return
	}
	if len(h.notes) == notesKept {
		copy(h.notes, h.notes[1:])
		h.notes = h.notes[:notesKept-1]
	}
	h.notes = append(h.notes, n)
}

// Notes are the latest changes of role, halts and restarts of the stream, the newest first. The number is that of the
// newest, 0 before the first.
func (h *State) Notes() (notes []Note, newest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	notes = slices.Clone(h.notes)
	slices.Reverse(notes)
	return notes, h.noted
}

// Noted is the number of the newest note.
func (h *State) Noted() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noted
}
