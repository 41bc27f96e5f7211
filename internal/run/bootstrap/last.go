package bootstrap

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// LastSession describes a process's last session.
type LastSession struct {
	Epoch     int64      // of its take-over; 0: it has had the slot in no session
	Timeline  int32      // of the server that it took over on: positions and epochs of another one are others
	Confirmed outbox.LSN // the most that it can have confirmed
	// RefusedAt is up to where the slot stood when what it holds could not be read, for the reason in Refusal; 0: it
	// could. A slot that stands further on is another one, made by another relay: made again once more it would lose what
	// that one has not read.
	RefusedAt outbox.LSN
	Refusal   string
	Unheard   int // sessions in a row that ended before their stream was read
	broken    broken
}

// Ended is how a session ended.
type Ended struct {
	Epoch     int64 // 0: it never took over
	Timeline  int32
	Confirmed outbox.LSN
	Heard     bool // its stream was read
	Err       error
}

// Next returns the description after one more session.
func (was LastSession) Next(e Ended) LastSession {
	last := LastSession{Epoch: e.Epoch, Timeline: e.Timeline, Confirmed: e.Confirmed}
	if last.Epoch == 0 { // it never took over, and confirmed nothing
		last.Epoch, last.Timeline, last.Confirmed = was.Epoch, was.Timeline, was.Confirmed
	}
	if why := refusal(e.Err); why != "" {
		last.RefusedAt, last.Refusal = e.Confirmed, why
	}
	last.broken = was.broken.next(e.Err, last.Confirmed > was.Confirmed || last.Timeline != was.Timeline)
	if !e.Heard {
		last.Unheard = was.Unheard + 1
		if store.Classify(e.Err) != store.Corrupt {
			last.broken = was.broken // it says nothing of what the slot holds
		}
	}
	return last
}

// Rows stand in the WAL as publication and table were when they were committed, and no repair changes that. So a slot
// may hold what cannot be read any more: the server refuses it, as the publication is younger, or a column had another
// name. The table has these rows as it is now. Once it and the publication are right, the relay makes a new slot, and
// the table comes first.

// refusal explains why a session could not read the slot; empty for other errors.
func refusal(err error) string {
	if _, ok := errors.AsType[*replication.PublicationMissingError](err); ok {
		return "is older than the publication, so the server cannot decode its WAL"
	}
	if e, ok := errors.AsType[*decoder.ColumnError](err); ok {
		return fmt.Sprintf("holds rows of a time at which the outbox published no column %q, so that the relay cannot "+
			"read them", e.Column)
	}
	return ""
}

const (
	brokenMost = 3           // sessions in a row that end by an internal error of the server before the relay halts
	brokenRest = time.Minute // then one more is tried so often; each decodes all that the slot holds
)

// broken counts sessions that the server ended by an internal error and that confirmed nothing. A row whose text form
// is larger than 1 GB does that (a bytea of 600 MB: two hexadecimal digits for each byte): the server can decode
// neither it nor anything behind it, however often it is asked.
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

// halt returns the halt of a start that would most likely fail again; nil if it may try, as after someone
// moved the slot.
func (b broken) halt(slot store.SlotStatus, confirmed outbox.LSN) error {
	if b.sessions < brokenMost || !slot.Exists || slot.Confirmed > confirmed || time.Since(b.at) > brokenRest {
		return nil
	}
	return &halt.Error{Code: halt.Unreadable, Cause: b.by,
		Reason: fmt.Sprintf("the server cannot give out what comes next, %d times in a row: %v", b.sessions, b.by),
		Risk:   halt.RiskWAL,
		Remedy: "most likely a row is too large for Postgres to print (1 GB of text; a bytea needs two characters for " +
			"each byte): find it and move the slot past it: docs/runbooks/unreadable.md"}
}
