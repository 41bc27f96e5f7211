package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

// Halt is a state in which going on could lose or reorder events: the relay stops confirming and says why, what is at
// risk and what to do. It probes again by itself: most halts end when the cause is repaired.
type Halt struct {
	Code   string // stable, for alerts and runbooks
	Reason string // what happened
	Risk   string // what is at risk while it lasts
	Remedy string // what to do
	cause  error
}

func (h *Halt) Error() string {
	return fmt.Sprintf("halted (%s): %s; at risk: %s; to do: %s; see %s", h.Code, h.Reason, h.Risk, strings.TrimRight(h.Remedy, ";"), h.Page())
}

// Page is where the documentation says what the halt means and what to do, step by step.
func (h *Halt) Page() string { return "docs/runbooks/" + h.Code + ".md" }

func (h *Halt) Unwrap() error { return h.cause }

// riskWAL is the usual risk of a halt: nothing is lost, and the server keeps WAL for the slot.
const riskWAL = "nothing is lost; events wait, and Postgres keeps WAL for the slot until they are relayed"

// The codes of halts.
const (
	HaltSlotMissing     = "slot_missing"
	HaltSlotLost        = "slot_lost"
	HaltSlotMoved       = "slot_moved"
	HaltReadOnly        = "read_only"
	HaltTwoServers      = "two_servers"
	HaltSlotMismatch    = "slot_mismatch"
	HaltOtherServer     = "other_server"
	HaltOtherTable      = "other_table"
	HaltBaseline        = "baseline"
	HaltCatchUpTooLarge = "catch_up_too_large"
	HaltNotInitialised  = "not_initialised"
	HaltPublication     = "publication"
	HaltColumn          = "column"
	HaltMalformedWAL    = "malformed_wal"
	HaltUnreadable      = "unreadable"
	HaltSetup           = "setup"
	HaltFlood           = "dlq_flood"
)

// halts are all codes; each has a page and a series of cdc_relay_halted.
var halts = []string{
	HaltSlotMissing, HaltSlotLost, HaltSlotMoved, HaltReadOnly, HaltTwoServers, HaltSlotMismatch, HaltOtherServer, HaltOtherTable, HaltBaseline,
	HaltCatchUpTooLarge, HaltNotInitialised, HaltPublication, HaltColumn, HaltMalformedWAL, HaltUnreadable, HaltSetup, HaltFlood,
}

// asHalt turns errors on which the relay must not go on into a Halt; nil for those that a new session may cure.
func asHalt(err error) *Halt {
	if h, ok := errors.AsType[*Halt](err); ok {
		return h
	}
	if e, ok := errors.AsType[*replication.SlotLostError](err); ok {
		return &Halt{Code: HaltSlotLost, Reason: e.Error(), cause: err,
			Risk:   "events that were committed after the slot's last position and not yet published are only in the outbox table now",
			Remedy: "with postgres.on_slot_lost: recover nothing: the relay drops the slot, makes a new one and publishes from the table what is not published; else see docs/runbooks/slot_lost.md"}
	}
	if e, ok := errors.AsType[*replication.SlotMismatchError](err); ok {
		return &Halt{Code: HaltSlotMismatch, Reason: e.Error(), Risk: riskWAL, cause: err,
			Remedy: "set postgres.slot to a name of its own, or drop the slot that has this name"}
	}
	if e, ok := errors.AsType[*replication.PublicationMissingError](err); ok {
		return &Halt{Code: HaltPublication, Reason: e.Error(), cause: err,
			Risk:   "rows that were committed while it was missing are not in the stream, though they are in the table",
			Remedy: "create the publication again (cdc-relay init --dry-run prints the statement); if the slot is older than it, see docs/runbooks/publication.md"}
	}
	if e, ok := errors.AsType[*replication.NoDecodingError](err); ok {
		return noDecoding(e.Error(), err)
	}
	if e, ok := errors.AsType[*decoder.ColumnError](err); ok {
		return columnHalt(e)
	}
	return nil
}

// columnHalt is the halt for an outbox that lacks a column, now or when the rows were inserted that come next: see refusal.
func columnHalt(err error) *Halt {
	return &Halt{Code: HaltColumn, Reason: err.Error(), Risk: riskWAL, cause: err,
		Remedy: "repair the column as said; rows that were committed while it was missing are published from the table then, before all newer ones. With postgres.on_slot_lost: halt that waits for a person: see docs/runbooks/column.md"}
}

// The labels of a session's end.
const (
	restartSilent         = "silent"
	restartServerShutdown = "server_shutdown"
	restartLeaseLost      = "lease_lost"
	restartConnection     = "connection"
)

// restartReason is the label of a session's end; few values, none from data.
func restartReason(err error) string {
	if _, ok := errors.AsType[*replication.SilentError](err); ok {
		return restartSilent
	}
	if errors.Is(err, replication.ErrServerEnded) {
		return restartServerShutdown
	}
	if errors.Is(err, errLeaseLost) || errors.Is(err, errNotStreaming) || errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrLeaseLost) {
		return restartLeaseLost
	}
	return restartConnection
}
