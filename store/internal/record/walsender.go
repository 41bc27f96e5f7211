package record

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// Walsender is what the server shows of the process that reads the WAL for a slot.
type Walsender struct {
	Visible bool // to this role; of another role's session a role without pg_read_all_stats sees nothing
	// Waits and WaitsFor are what it waits for, as in pg_stat_activity: the type of the event, and its name. Both are
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
