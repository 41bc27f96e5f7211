package record

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
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
	Plugin, Database    string
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
