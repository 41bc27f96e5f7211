package record

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Blocker is a transaction that has not ended: a session's or a prepared one. What it runs is not told, it may hold
// data.
type Blocker struct {
	PID         int32  // 0 = a prepared transaction, or a session that this role may not see (pg_read_all_stats shows it)
	Prepared    string // the prepared transaction's name
	User        string
	Database    string
	Application string
	State       string // such as "idle in transaction"
	Since       time.Time
}

// String says who it is, and how to end it.
func (b Blocker) String() string {
	switch {
	case b.Prepared != "":
		gid := literal(b.Prepared)
		return fmt.Sprintf("prepared transaction %q of %s, since %s: if its coordinator has forgotten it, run in database "+
			"%s: "+
			"ROLLBACK PREPARED %s; (or COMMIT PREPARED %s;)", b.Prepared, b.User, b.Since.Format(time.RFC3339), b.Database, gid,
			gid)
	case b.PID == 0:
		return "a transaction of another role: grant pg_read_all_stats to this role to see whose"
	}
	return fmt.Sprintf("pid %d (%s, %s) of %s in database %s, transaction since %s: SELECT pg_terminate_backend(%d) "+
		"ends it",
		b.PID, b.Application, b.State, b.User, b.Database, b.Since.Format(time.RFC3339), b.PID)
}

// literal is a text as SQL has it, with standard_conforming_strings on or off.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		quoted = "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// ErrBarrier is a ready-made error for a barrier that was not passed.
func ErrBarrier(blockers []Blocker) error {
	if len(blockers) == 0 {
		return nil
	}
	list := make([]error, 0, len(blockers))
	for _, b := range blockers {
		list = append(list, errors.New(b.String()))
	}
	return fmt.Errorf("transactions that began before the slot are still open: %w", errors.Join(list...))
}

// SlotStatus is the slot's row of pg_replication_slots, and the end of the WAL to compare it with.
type SlotStatus struct {
	Exists, Active      bool
	ActivePID           uint32 // the walsender that holds it; 0 = none
	Plugin, Database    string // empty: a physical slot has none
	Here                string // the database that was asked
	Confirmed, Restart  outbox.LSN
	WALEnd              outbox.LSN // as written on this server; replayed, on a standby
	WALStatus           string     // reserved, extended, unreserved or lost
	SafeWALSize         *int64     // bytes until the slot is in danger; nil = no limit is set
	RetainedBytes       int64      // WAL that the slot keeps from removal
	Temporary, TwoPhase bool
	InvalidationReason  string // Postgres 17 and later
	Failover, Synced    bool   // Postgres 17 and later: it is kept on standbys; it is such a copy
	Recovery            bool   // this server is a standby
	// the server's wal_level, if it makes no logical slot with that; PostgreSQL 19 raises it when it needs to
	TooLowWALLevel string
}

// OtherSlotName returns the remedy for a slot with a [SlotStatus.Mismatch]. Whose it is no one here knows, so that it
// is left alone.
const OtherSlotName = "set postgres.slot to a name that no slot of this server has; leave the other slot to its owner"

// Mismatch reports why the slot cannot be this relay's, as the end of a sentence about it; "" if it can be, or if there
// is none. All databases of a server share the names of slots, so it is looked at before anything else of the slot.
func (s SlotStatus) Mismatch() string {
	switch {
	case !s.Exists:
		return ""
	case s.Database != "" && s.Database != s.Here:
		return fmt.Sprintf("it belongs to database %q and this connection is to %q", s.Database, s.Here)
	case s.Plugin == "":
		return "it is a physical slot; a logical slot with pgoutput is needed"
	case s.Plugin != "pgoutput":
		return fmt.Sprintf("its plugin is %q; a logical slot with pgoutput is needed", s.Plugin)
	}
	return ""
}

// Walsender describes the server process that reads the WAL for a slot.
type Walsender struct {
	Visible bool // to this role; of another role's session a role without pg_read_all_stats sees nothing
	// Waits and WaitsFor are the type and name of its wait event, as in pg_stat_activity. Both are
	// empty while it runs.
	Waits, WaitsFor string
	// Sent is up to where it has worked through the WAL; nil: a role without pg_read_all_stats is not told.
	Sent *outbox.LSN
	// SpilledTransactions were larger than logical_decoding_work_mem, so that SpilledBytes of their changes went to
	// files; both count since the server's statistics of the slot were reset. Every role sees them.
	SpilledTransactions, SpilledBytes int64
}

// Idle reports whether it waits for WAL: it has worked through all there is.
func (w Walsender) Idle() bool {
	return w.WaitsFor == "WalSenderMain" || strings.EqualFold(w.WaitsFor, "WalSenderWaitForWAL") // …Wal from 17 on
}

// Blocked reports whether it waits for the other end of its connection to take what it sends.
func (w Walsender) Blocked() bool { return w.WaitsFor == "WalSenderWriteData" }

// Works reports whether it runs, or waits for nothing but files and memory of the server.
func (w Walsender) Works() bool {
	return w.Visible && (w.Waits == "" || w.Waits == "IO" || w.Waits == "LWLock")
}
