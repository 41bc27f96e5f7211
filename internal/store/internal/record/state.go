package record

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// The phases of a relay.
const (
	CatchUp = "catch_up" // rows of the table first, then the stream
	Stream  = "stream"
	// AsSlot is the phase of an outbox that comes to a slot with several: CatchUp until the rows that are older than
	// the slot are listed, then Stream.
	AsSlot = ""
)

// State is a slot's state across restarts.
type State struct {
	Source       int32      // the number of (slot, table) in every key
	TableOID     uint32     // the outbox table that Source stands for
	Phase        string     // CatchUp or Stream
	Dirty        bool       // the last session has not ended by CleanStop
	Confirmed    outbox.LSN // as last saved; the slot may be ahead of it after an unclean stop
	SystemID     string
	Timeline     int32
	Epoch        int64      // as last taken over by anybody; 0 = never
	TakenLSN     outbox.LSN // where the WAL stood at that moment; 0: not known
	CatchUpReady bool       // SnapshotCatchUp is done, CatchUpRows says what is left
	CatchUpLate  bool       // what the present catch-up publishes is marked as late
	// the epoch of the last SnapshotCatchUp, 0 when there was none; of positions, see outbox.Position
	Era       int64
	Baseline  bool      // which older rows count as published is settled: by SetBaseline, or a relay has streamed since
	Swept     bool      // the table was looked through since it has this number
	UpdatedAt time.Time // of the last progress

	// Lanes is Config.Lanes of the relay that noted its progress last; empty: not known.
	Lanes string

	// FormerSystems are the servers that the source lived on before it was adopted: records that carry them are ours, too.
	FormerSystems []string
}
