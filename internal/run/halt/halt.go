// Package halt names the states in which a relay must not go on: each has a code, a reason, what is at risk and what
// to do. Of tells which errors are such states. The package decides nothing else: who halts, for how long, and what is
// logged is the relay's.
package halt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Error is a state in which going on could lose or reorder events: the relay stops confirming and says why, what is at
// risk and what to do. It probes again by itself: most halts end when the cause is repaired.
type Error struct {
	Code   string // stable, for alerts and runbooks
	Reason string // what happened
	Risk   string // what is at risk while it lasts
	Remedy string // what to do
	Cause  error  // may be nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("halted (%s): %s; at risk: %s; to do: %s; see %s",
		e.Code, e.Reason, e.Risk, strings.TrimRight(e.Remedy, ";"), e.Page())
}

// Page is where the documentation says what the halt means and what to do, step by step.
func (e *Error) Page() string { return "docs/runbooks/" + e.Code + ".md" }

func (e *Error) Unwrap() error { return e.Cause }

// RiskWAL is the usual risk of a halt: nothing is lost, and the server keeps WAL for the slot, unless it has a limit.
const RiskWAL = "nothing is lost; events wait, and Postgres keeps WAL for the slot until they are relayed, " +
	"as long as max_slot_wal_keep_size and idle_replication_slot_timeout allow"

// The codes of halts. Each has a page in docs/runbooks.
const (
	SlotMissing     = "slot_missing"
	SlotLost        = "slot_lost"
	SlotMoved       = "slot_moved"
	ReadOnly        = "read_only"
	TwoServers      = "two_servers"
	SlotMismatch    = "slot_mismatch"
	SecondSlot      = "second_slot"
	OtherServer     = "other_server"
	OtherTable      = "other_table"
	Baseline        = "baseline"
	CatchUpTooLarge = "catch_up_too_large"
	NotInitialised  = "not_initialised"
	Publication     = "publication"
	Column          = "column"
	MalformedWAL    = "malformed_wal"
	Unreadable      = "unreadable"
	Setup           = "setup"
	Flood           = "dlq_flood"
	Encoding        = "invalid_encoding"
)

// Configuration is the code of a relay that cannot be made: what its file says is wrong, or is not possible beside the
// others of its directory. A relay that runs is never halted for it.
const Configuration = "configuration"

// Codes are all codes of relays that run; each has a series of cdc_relay_halted.
func Codes() []string {
	return []string{
		SlotMissing, SlotLost, SlotMoved, ReadOnly, TwoServers, SlotMismatch, SecondSlot, OtherServer, OtherTable,
		Baseline, CatchUpTooLarge, NotInitialised, Publication, Column, MalformedWAL, Unreadable, Setup, Flood,
		Encoding,
	}
}

// Of turns an error on which the relay must not go on into a halt; nil for one that a new session may cure.
func Of(err error) *Error {
	if h, ok := errors.AsType[*Error](err); ok {
		return h
	}
	if h := Refused(err); h != nil {
		return h
	}
	if e, ok := errors.AsType[*replication.SlotLostError](err); ok {
		return &Error{Code: SlotLost, Reason: e.Error(), Cause: err,
			Risk: "events that were committed after the slot's last position and not yet published " +
				"are only in the outbox table now",
			Remedy: "nothing, if postgres.on_slot_lost is recover (the default): the relay recreates the slot and publishes " +
				"the missing rows from the table. Otherwise see docs/runbooks/slot_lost.md"}
	}
	if e, ok := errors.AsType[*replication.SlotMismatchError](err); ok {
		return &Error{Code: SlotMismatch, Reason: e.Error(), Risk: RiskWAL, Cause: err,
			Remedy: "set postgres.slot to a name that no slot of this server has; leave the other slot to its owner"}
	}
	if e, ok := errors.AsType[*replication.PublicationMissingError](err); ok {
		return &Error{Code: Publication, Reason: e.Error(), Cause: err,
			Risk: "rows that were committed while it was missing are not in the stream, though they are in the table",
			Remedy: "create the publication again (cdc-relay init --dry-run prints the statement); " +
				"if the slot is older than it, see docs/runbooks/publication.md"}
	}
	if e, ok := errors.AsType[*replication.NoDecodingError](err); ok {
		return NoDecoding(e.Error(), err)
	}
	if e, ok := errors.AsType[*replication.EncodingError](err); ok {
		return &Error{Code: Encoding, Reason: e.Error(), Risk: RiskWAL, Cause: err,
			Remedy: "correct the row's text in the table, which has the bytes that the server names (docs/runbooks/" +
				"invalid_encoding.md has the statement that finds it), then cdc-relay slot advance --to end --yes: the relay " +
				"publishes from the table what that skips"}
	}
	if e, ok := errors.AsType[*replication.SynchronousStandbyError](err); ok {
		return synchronousStandby(e, err)
	}
	if e, ok := errors.AsType[*decoder.ColumnError](err); ok {
		return MissingColumn(e)
	}
	return nil
}

// synchronousStandby is the halt for a server that would wait for the relay with each commit, and have the relay wait
// for itself.
func synchronousStandby(e *replication.SynchronousStandbyError, cause error) *Error {
	return &Error{Code: Setup, Reason: e.Error(), Cause: cause,
		Risk: "if the relay streamed, every commit would wait for its confirmation, including its own: all commits would " +
			"hang, the application's too. While it does not stream, " + RiskWAL,
		Remedy: replication.StandbyRemedy + "; the relay then continues by itself"}
}

// Refused is the halt for a server that lets no one in until someone changes something: a password, a role, a
// database. It is nil for any other error, and for a server that a later attempt may reach.
func Refused(err error) *Error {
	r := login.Of(err)
	if r == nil || !r.Permanent {
		return nil
	}
	return &Error{Code: Setup, Reason: "cannot log in to Postgres: " + r.Reason, Risk: RiskWAL, Remedy: r.Remedy,
		Cause: err}
}

// Incomplete is the halt for a publication that leaves out rows or columns of the outbox: what is wrong, and the
// statements that repair it; one may repair several things.
func Incomplete(publication string, what, repairs []string) *Error {
	var run []string
	for _, statement := range repairs {
		if statement += ";"; !slices.Contains(run, statement) {
			run = append(run, statement)
		}
	}
	return &Error{Code: Publication,
		Reason: fmt.Sprintf("publication %q: %s", publication, strings.Join(what, "; ")),
		Risk:   "rows that are committed while this lasts are not in the stream, though they are in the table",
		Remedy: "run " + strings.Join(run, " ")}
}

// MissingColumn is the halt for an outbox that lacks a column, now or when the rows were inserted that come next.
func MissingColumn(err error) *Error {
	return &Error{Code: Column, Reason: err.Error(), Risk: RiskWAL, Cause: err,
		Remedy: "fix the column as shown; rows committed while it was missing are then published from the table, " +
			"before newer ones. If postgres.on_slot_lost is halt, see docs/runbooks/column.md"}
}

// NoDecoding is the halt for a server whose WAL holds too little to decode events from. The cause may be nil.
func NoDecoding(reason string, cause error) *Error {
	return &Error{Code: Setup, Reason: reason, Cause: cause,
		Risk: "nothing is lost; events wait in the outbox table",
		Remedy: "ALTER SYSTEM SET wal_level = logical; and restart Postgres (managed services have a parameter for it, " +
			"such as rds.logical_replication = 1); then cdc-relay init, or start the relay"}
}

// WrongServer is the halt for a server that is not the one that the relay's state was written on.
func WrongServer(here, there string) *Error {
	return &Error{Code: OtherServer,
		Reason: fmt.Sprintf("this server's system identifier is %s and the relay's state was written on %s", here, there),
		Risk:   "the slot's position may be meaningless on this server; events could be skipped",
		Remedy: "point postgres.url and postgres.replication_url at the same, original server; if this server is the " +
			"database's new home (pg_upgrade, a restored dump, logical replication), run cdc-relay adopt"}
}
