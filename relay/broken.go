package relay

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	brokenMost = 3           // sessions in a row that end by an internal error of the server before the relay halts
	brokenRest = time.Minute // then one more is tried so often; each decodes all that the slot holds
)

// broken counts sessions that the server ended by an internal error and that confirmed nothing. A row whose text form is
// larger than 1 GB does that (a bytea of 600 MB: two hexadecimal digits for each byte): the server can decode neither it nor
// anything behind it, however often it is asked.
type broken struct {
	sessions int
	by       error
	at       time.Time
}

// next is the count after one more session.
func (b broken) next(err error, progress bool) broken {
	if store.Classify(err) != store.Corrupt {
		return broken{}
	}
	if progress {
		b.sessions = 0
	}
	return broken{sessions: b.sessions + 1, by: err, at: time.Now()}
}

// halt is what a start says when the same would most likely happen again; nil when it may be tried, as when somebody has
// moved the slot.
func (b broken) halt(slot store.SlotStatus, confirmed outbox.LSN) error {
	if b.sessions < brokenMost || !slot.Exists || slot.Confirmed > confirmed || time.Since(b.at) > brokenRest {
		return nil
	}
	return &halt.Error{Code: halt.Unreadable, Cause: b.by,
		Reason: fmt.Sprintf("the server cannot give out what comes next, %d times in a row: %v", b.sessions, b.by),
		Risk:   halt.RiskWAL,
		Remedy: "most likely a row is too large for Postgres to print (1 GB of text; a bytea needs two characters for each byte): find it and move the slot past it as docs/runbooks/unreadable.md says"}
}
