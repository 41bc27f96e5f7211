package record

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Locate adds what a running relay has in flight, which no one else knows, and puts all into words.
func Locate(found []Found, inFlight map[string]FoundInTransit, slot SlotStatus, spooled SpoolState) {
	for i := range found {
		f := &found[i]
		if transit, there := inFlight[f.ID]; there {
			f.InFlight = &transit
			if f.State == FoundWaiting || f.State == FoundNothing || f.State == FoundMarked {
				f.State = FoundInFlight
			}
		}
		f.Tell(slot)
		f.perhapsSpooled(spooled)
	}
}

// perhapsSpooled adds that the event may be spooled: what is there has no index of ids.
func (f *Found) perhapsSpooled(spooled SpoolState) {
	if spooled.Empty() || f.State != FoundWaiting && f.State != FoundNothing {
		return
	}
	f.Says += fmt.Sprintf(" %d events, the oldest from %s, are stored in cdc_relay_spool until they can be sent; it may "+
		"be one of them, also if its row was deleted.", spooled.Events, at(spooled.Oldest))
	f.Do = "Fix what keeps events from being sent: cdc-relay status names it. The relay then sends them in order."
}

// Tell describes where the event is and what to do about it. The slot is the relay's, as this server reports it.
func (f *Found) Tell(slot SlotStatus) {
	switch f.State {
	case FoundPublished:
		f.Says = f.published()
	case FoundBaseline:
		f.Says = "It was marked as published when the relay began; the relay has not sent it."
	case FoundParked:
		f.Says, f.Do = f.Parked.tell(f.ID, OutboxFlag(f.Outbox))
	case FoundDiscarded:
		f.Says = fmt.Sprintf("It was a dead letter, and %s discarded it at %s%s. It is not published.",
			name(f.Dead.ResolvedBy),
			at(*f.Dead.DiscardedAt), because(f.Dead.Note))
	case FoundDead:
		f.Says = fmt.Sprintf("It is a dead letter of topic %s since %s, after %d attempts: %s: %s", f.Dead.Topic,
			at(f.Dead.DeadAt), f.Dead.Attempts, f.Dead.Code, f.Dead.LastError)
		if edited := f.Dead.edited(); edited != "" {
			f.Says += "." + edited
		}
		named := f.ID + OutboxFlag(f.Outbox)
		f.Do = "Fix the cause, then: cdc-relay dlq replay " + named + "; or edit it: cdc-relay dlq edit " +
			named + "; or close it: cdc-relay dlq discard " + named
	case FoundInFlight:
		f.Says = fmt.Sprintf("The relay has read it at %s and is sending it to topic %s; it is not acknowledged and "+
			"recorded yet.",
			at(f.InFlight.Since), f.InFlight.Topic)
		f.Do = "Nothing. If it persists, cdc-relay status shows the broker's answer."
	case FoundMarked:
		f.Says = "Its row is marked as published, but the journal has no record. Another program published it, or its " +
			"journal row is older than journal.retention."
	case FoundWaiting:
		f.Says, f.Do = waiting(slot)
		if f.Published != nil {
			f.Says += " Another event had this id before: " + f.published()
		}
	default:
		f.Says = "The table has no such row, and the relay has recorded nothing of it."
		f.Do = "Look whether the id is right and its transaction has been committed. A row that was deleted may have been " +
			"published, and its journal row may be older than journal.retention; or the relay has not read its WAL yet."
	}
}

func (f *Found) published() string {
	if f.Published == nil { // the dead letter says it
		return fmt.Sprintf("It was a dead letter, and was published by a replay at %s. Its journal row is older than "+
			"journal.retention.", at(*f.Dead.ReplayedAt)) + f.Dead.edited()
	}
	place := "topic " + f.Published.Topic
	if f.Published.Partition != nil {
		place += fmt.Sprintf(", partition %d", *f.Published.Partition)
	}
	if f.Published.Offset != nil {
		place += fmt.Sprintf(", offset %d", *f.Published.Offset)
	}
	said := fmt.Sprintf("It was published to %s; recorded at %s.", place, at(f.Published.At))
	if f.Dead != nil && f.Dead.ReplayedAt != nil {
		said += fmt.Sprintf(" Before that it was a dead letter since %s.", at(f.Dead.DeadAt))
		said += f.Dead.edited()
	}
	return said
}

// edited says who changed what is sent, if someone did.
func (d *FoundDeath) edited() string {
	if d.EditedAt == nil {
		return ""
	}
	return fmt.Sprintf(" It was edited by %s at %s: cdc-relay dlq show has the previous version.",
		name(d.EditedBy), at(*d.EditedAt))
}

func (p *FoundParking) tell(id, flag string) (says, do string) {
	says = fmt.Sprintf("It is parked for topic %s since %s", p.Topic, at(p.ParkedAt))
	if p.Attempts > 0 {
		says += fmt.Sprintf(", after %d attempts", p.Attempts)
	}
	reason := ""
	if p.LastError != "" {
		reason = ": " + p.LastError
	}
	switch {
	case p.Behind != nil:
		says += fmt.Sprintf(", behind %d others of its key; the first is %s", p.Before, *p.Behind)
		return says + reason, "See to the first: cdc-relay find " + *p.Behind + flag
	case p.Waits:
		return says + ", until the topic or the partition is well" + reason,
			"Fix the topic: cdc-relay check shows the problem. The relay retries by itself."
	case p.NextRetryAt == nil:
		return says + ", behind a dead letter of its key, which holds its followers (retry.on_dead: hold)" + reason,
			"Replay or discard that dead letter: cdc-relay dlq list" + flag
	}
	return says + ", next attempt at " + at(*p.NextRetryAt) + reason,
		"Nothing; or sooner: cdc-relay retry now " + id + flag
}

func waiting(slot SlotStatus) (says, do string) {
	const committed = "Its row is committed, and nothing is recorded of it yet"
	switch {
	case !slot.Exists:
		return committed + "; the replication slot does not exist.",
			"Start a relay: cdc-relay run. It publishes what is in the table and not recorded."
	case !slot.Active:
		return fmt.Sprintf("%s; no relay streams now. The slot keeps the WAL from %s on.", committed, slot.Confirmed),
			"Start a relay: cdc-relay run"
	}
	return fmt.Sprintf("%s. The relay streams, and has confirmed WAL up to %s; it ends at %s.", committed, slot.Confirmed,
			slot.WALEnd),
		"Wait; cdc-relay status shows how far the relay is behind. Should the stream have missed it, the next round of " +
			"reconcile.interval publishes it."
}

// OutboxFlag names an outbox in a command that people paste; "" without a name.
func OutboxFlag(outbox string) string {
	plain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.-", r))
	}
	switch {
	case outbox == "":
		return ""
	case strings.ContainsFunc(outbox, func(r rune) bool { return !plain(r) }):
		outbox = "'" + strings.ReplaceAll(outbox, "'", `'\''`) + "'"
	}
	return " --outbox " + outbox
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func name(who *string) string {
	if who == nil || *who == "" {
		return "unknown"
	}
	return *who
}

func because(note *string) string {
	if note == nil || *note == "" {
		return ""
	}
	return ": " + *note
}
