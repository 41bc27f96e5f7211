package meter

import (
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Database holds the latest values read from the database. The watch stores them, any goroutine reads them.
type Database struct {
	OpenDead  Reading // dead letters that no one has replayed or discarded
	mirrorLag Reading // events journaled and not yet marked or deleted
	mirrorAge Reading // for how long the oldest of them is to be, microseconds
	marked    atomic.Uint64

	slot         atomic.Pointer[slotLook]  // nil before the first look
	oldestParked atomic.Int64              // when it was parked, microseconds since the Unix epoch; 0: none
	clean        atomic.Pointer[time.Time] // see Audited; nil: never
	eventBytes   atomic.Int64              // of WAL, see NoteWAL; 0: not known
	older        atomic.Pointer[olderRows] // see TableFirst; nil: the stream has everything
	unread       unread
	sender       sender
}

// Reading is a number as it was read last while this process leads.
type Reading struct {
	value atomic.Int64
	known atomic.Bool
}

// Set takes in what was read.
func (n *Reading) Set(value int64) {
	n.value.Store(value)
	n.known.Store(true)
}

// Value is the number, 0 if it is not known.
func (n *Reading) Value() int64 { return n.value.Load() }

// Unread drops the number: it could not be read again.
func (n *Reading) Unread() {
	n.known.Store(false)
	n.value.Store(0)
}

// Mirrored takes in how many events are journaled and not yet marked or deleted, and for how long the oldest is to be.
func (d *Database) Mirrored(events int64, age time.Duration) {
	d.mirrorLag.Set(events)
	d.mirrorAge.Set(age.Microseconds())
}

// MirrorUnread drops both: they could not be read again.
func (d *Database) MirrorUnread() {
	d.mirrorLag.Unread()
	d.mirrorAge.Unread()
}

// Marked counts rows that were marked or deleted.
func (d *Database) Marked(rows int) { d.marked.Add(uint64(rows)) }

// slotLook is the slot as it was at a time.
type slotLook struct {
	store.SlotStatus
	at time.Time
}

// slotFresh is for how long a look at the slot is shown, five times the pause between two. A zero in its place would be
// read as "no WAL is kept".
const slotFresh = 10 * time.Second

// Looked takes in a look at the slot, asked for at the given time.
func (d *Database) Looked(slot store.SlotStatus, asked time.Time) {
	d.slot.Store(&slotLook{slot, asked})
	d.unread.note(asked, slot.WALEnd)
}

// Slot is the slot as this process saw it last, and when. False: it has not, or not for some time.
func (d *Database) Slot() (slot store.SlotStatus, at time.Time, fresh bool) {
	s := d.slot.Load()
	if s == nil || time.Since(s.at) > slotFresh {
		return store.SlotStatus{}, time.Time{}, false
	}
	return s.SlotStatus, s.at, true
}

// SlotLook is the replication slot as it was seen last. Names in JSON are stable.
type SlotLook struct {
	At        time.Time `json:"at"`
	Name      string    `json:"name"`
	Exists    bool      `json:"exists"`
	Active    bool      `json:"active"`
	Status    string    `json:"wal_status"` // reserved, extended, unreserved, lost; "" before it is reserved
	Retained  int64     `json:"retained_wal_bytes"`
	Safe      *int64    `json:"safe_wal_bytes"` // null: no limit
	Confirmed string    `json:"confirmed_lsn"`
	Restart   string    `json:"restart_lsn"`
	WALEnd    string    `json:"wal_end_lsn"`
}

// SlotLook is the slot of that name as it was seen last; nil if no one has looked, or not lately.
func (d *Database) SlotLook(name string) *SlotLook {
	s, at, fresh := d.Slot()
	if !fresh {
		return nil
	}
	return &SlotLook{
		At: at, Name: name, Exists: s.Exists, Active: s.Active, Status: s.WALStatus,
		Retained: s.RetainedBytes, Safe: s.SafeWALSize,
		Confirmed: s.Confirmed.String(), Restart: s.Restart.String(), WALEnd: s.WALEnd.String(),
	}
}

// OldestParked takes in when the oldest parked event was parked; a zero time: none is.
func (d *Database) OldestParked(at time.Time) {
	if at.IsZero() {
		d.oldestParked.Store(0)
		return
	}
	d.oldestParked.Store(at.UnixMicro())
}

// olderRows are rows that the stream does not bring: a catch-up publishes them from the table.
type olderRows struct {
	left   int64     // that are not in flight; -1: not known
	oldest time.Time // when the oldest of all was made; zero: not known
}

// TableFirst takes in whether a catch-up is to be done. What is known of its rows stays known until it is done.
func (d *Database) TableFirst(is bool) {
	if !is {
		d.older.Store(nil)
		return
	}
	d.older.CompareAndSwap(nil, &olderRows{left: -1})
}

// RowsLeft takes in how far a catch-up is: how many rows are to be handed in, -1 where that is not known, and when the
// oldest that is not published was made, a zero time where that is not known.
func (d *Database) RowsLeft(rows int64, oldest time.Time) {
	d.older.Store(&olderRows{left: rows, oldest: oldest})
}

// Audited takes in when the last reconcile round began that found nothing missing.
func (d *Database) Audited(began time.Time) { d.clean.Store(&began) }

// EnoughEvents is how many events NoteWAL needs to learn from.
const EnoughEvents = 16

// risesBy is the part by which the WAL of an event may grow from one look to the next.
const risesBy = 16

// NoteWAL takes in how much WAL transactions with so many events had between their first change and their commit. What
// the relay itself writes about each event, the server's checkpoints, and other transactions in between would make
// events look larger than they are, and the backlog smaller: the least that was seen counts, and rises slowly. One
// goroutine calls it.
func (d *Database) NoteWAL(bytes, events uint64) {
	seen, least := max(int64(bytes/events), 1), d.eventBytes.Load()
	if least != 0 {
		seen = min(seen, least+least/risesBy+1)
	}
	d.eventBytes.Store(seen)
}
