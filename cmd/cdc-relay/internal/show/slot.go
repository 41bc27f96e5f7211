package show

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Slot is a replication slot as it is shown.
type Slot struct {
	Name         string `json:"slot"`
	Exists       bool   `json:"exists"`
	Active       bool   `json:"active"`
	ActivePID    uint32 `json:"active_pid,omitempty"`
	Plugin       string `json:"plugin,omitempty"`
	Database     string `json:"database,omitempty"`
	ConfirmedLSN string `json:"confirmed_lsn,omitempty"`
	RestartLSN   string `json:"restart_lsn,omitempty"`
	WALEnd       string `json:"wal_end"`
	LagBytes     int64  `json:"lag_bytes"`
	Retained     int64  `json:"retained_wal_bytes"`
	Safe         *int64 `json:"safe_wal_bytes"`
	WALStatus    string `json:"wal_status,omitempty"`
	Invalidation string `json:"invalidation_reason,omitempty"`
	Failover     bool   `json:"failover"`
	Synced       bool   `json:"synced"`
	Temporary    bool   `json:"temporary"`
	Mismatch     string `json:"mismatch,omitempty"` // why it cannot be this relay's
}

// SlotOf describes the slot of that name as the server reports it.
func SlotOf(name string, s store.SlotStatus) Slot {
	r := Slot{
		Name: name, Exists: s.Exists, Active: s.Active, ActivePID: s.ActivePID, Plugin: s.Plugin, Database: s.Database,
		WALEnd: s.WALEnd.String(), Retained: s.RetainedBytes, Safe: s.SafeWALSize, WALStatus: s.WALStatus,
		Invalidation: s.InvalidationReason, Failover: s.Failover, Synced: s.Synced, Temporary: s.Temporary,
		Mismatch: s.Mismatch(),
	}
	if s.Exists {
		r.ConfirmedLSN, r.RestartLSN = s.Confirmed.String(), s.Restart.String()
		r.LagBytes = max(int64(s.WALEnd)-int64(s.Confirmed), 0)
	}
	return r
}

// Print prints the slot for people.
func (r Slot) Print(a *cli.App) {
	line := func(name, format string, args ...any) {
		cli.Fprintf(a.Out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if !r.Exists {
		line("slot", "%s: %s", r.Name, a.Paint(cli.Red, "no such slot on this server"))
		return
	}
	line("slot", "%s, plugin %s, database %s", r.Name, r.Plugin, r.Database)
	if r.Mismatch != "" {
		line("mismatch", "%s", a.Paint(cli.Red, r.Mismatch+": "+store.OtherSlotName))
	}
	switch {
	case r.Active:
		line("held by", "backend %d", r.ActivePID)
	default:
		line("held by", "%s", a.Paint(cli.Yellow, "none: no relay streams, and the server keeps WAL for the slot"))
	}
	line("position", "confirmed %s, %s behind the end of WAL", r.ConfirmedLSN, cli.Bytes(r.LagBytes))
	line("keeps", "%s of WAL", cli.Bytes(r.Retained))
	if r.Safe != nil {
		line("limit", "%s more can be written before the server may remove needed WAL (max_slot_wal_keep_size)",
			cli.Bytes(*r.Safe))
	}
	status := r.WALStatus
	if r.Invalidation != "" {
		status += " (" + r.Invalidation + ")"
	}
	colour := cli.Green
	if r.WALStatus == "unreserved" || r.WALStatus == "lost" {
		colour = cli.Red
	}
	line("WAL", "%s", a.Paint(colour, status))
	if r.Failover || r.Synced || r.Temporary {
		line("failover", "kept on standbys: %v; a copy of the primary's: %v; lost at a promotion: %v", r.Failover, r.Synced,
			r.Synced && r.Temporary)
	}
}
